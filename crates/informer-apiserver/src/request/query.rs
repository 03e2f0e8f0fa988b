//! Query parameters of requests, parsed and validated as in kube-apiserver.
//!
//! The first value of a repeated parameter counts (except `dryRun`, see `Query::all`). Unknown parameters are
//! ignored. Invalid values are rejected with the messages of kube-apiserver.

use informer_objects::status::{Status, StatusCause};

use crate::model::{ReadVersion, Token, WatchStart};

/// Returns the value of a boolean parameter. As in kube-apiserver, everything but `false` (in any case) and
/// `0` is true.
pub(crate) fn is_true(value: &str) -> bool {
    !value.eq_ignore_ascii_case("false") && value != "0"
}

/// The parameters of a request.
#[derive(Debug, Clone, Default)]
pub(crate) struct Query(Vec<(String, String)>);

/// The options of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ListOptions {
    pub(crate) at: ReadVersion,
    /// A version that the server must have reached before it lists.
    pub(crate) min_version: Option<u64>,
    /// The page size; 0 for no limit.
    pub(crate) limit: usize,
}

/// The options of a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WatchOptions {
    pub(crate) from: WatchStart,
    /// A version that the server must have reached before it sends initial events.
    pub(crate) min_version: Option<u64>,
    pub(crate) bookmarks: bool,
    /// In seconds, never 0. A negative timeout ends the watch immediately; `None` selects the server's
    /// default.
    pub(crate) timeout: Option<i64>,
}

impl Query {
    pub(crate) fn parse(query: &str) -> Self {
        Query(form_urlencoded::parse(query.as_bytes()).into_owned().collect())
    }

    /// Returns the value of a parameter, empty if it is missing.
    pub(crate) fn get(&self, name: &str) -> &str {
        self.find(name).unwrap_or_default()
    }

    pub(crate) fn is_watch(&self) -> bool {
        self.flag("watch").unwrap_or(false)
    }

    /// Parses the options of a list. As in kube-apiserver, the limit is ignored for `resourceVersion=0` if
    /// the resource is cached.
    pub(crate) fn list(&self, cached: bool) -> Result<ListOptions, Status> {
        let limit = self.number("limit")?.unwrap_or(0);
        self.check_list()?;
        let (version, token) = (self.get("resourceVersion"), self.get("continue"));
        let limit = if version == "0" && cached { 0 } else { usize::try_from(limit).unwrap_or(0) };
        if !token.is_empty() {
            let token = Token::decode(token).map_err(Status::bad_request)?;
            if !version.is_empty() && version != "0" {
                let message = "specifying resource version is not allowed when using continue";
                return Err(Status::bad_request(message));
            }
            return Ok(ListOptions { at: ReadVersion::Token(token), min_version: None, limit });
        }
        if version.is_empty() {
            return Ok(ListOptions { at: ReadVersion::Newest, min_version: None, limit });
        }
        let number = parse_version(version)
            .map_err(|error| Status::bad_request(format!("invalid resource version: {error}")))?;
        if number == 0 {
            return Ok(ListOptions { at: ReadVersion::Newest, min_version: None, limit });
        }
        let exact = match self.get("resourceVersionMatch") {
            "Exact" => true,
            "NotOlderThan" => false,
            // Without a match rule, kube-apiserver reads pages at exactly this version.
            _ => limit > 0,
        };
        let at = if exact { ReadVersion::Exact(number) } else { ReadVersion::Newest };
        Ok(ListOptions { at, min_version: Some(number), limit })
    }

    pub(crate) fn watch(&self) -> Result<WatchOptions, Status> {
        let timeout = self.number("timeoutSeconds")?;
        let version = self.get("resourceVersion");
        let mut initial = self.flag("sendInitialEvents");
        let mut match_rule = self.get("resourceVersionMatch");
        // For compatibility, kube-apiserver starts a watch without a version, or with version 0, with the
        // existing objects.
        if initial.is_none() && match_rule.is_empty() && matches!(version, "" | "0") {
            (initial, match_rule) = (Some(true), "NotOlderThan");
        }
        self.check_watch(initial, match_rule)?;
        let number = if version.is_empty() { Ok(0) } else { parse_version(version) };
        let number = number.map_err(Status::internal)?;
        let (from, min_version) = match (initial, number) {
            (Some(true), 0) => (WatchStart::ExistingObjects, None),
            (Some(true), number) => (WatchStart::ExistingObjects, Some(number)),
            (_, 0) => (WatchStart::Now, None),
            (_, number) => (WatchStart::Version(number), None),
        };
        let bookmarks = self.flag("allowWatchBookmarks").unwrap_or(false);
        Ok(WatchOptions { from, min_version, bookmarks, timeout: timeout.filter(|seconds| *seconds != 0) })
    }

    /// Returns the version that a read of one object requires the server to have reached.
    pub(crate) fn min_version(&self) -> Result<Option<u64>, Status> {
        match self.get("resourceVersion") {
            "" | "0" => Ok(None),
            version => parse_version(version).map(Some).map_err(Status::internal),
        }
    }

    fn check_list(&self) -> Result<(), Status> {
        let (match_rule, version) = (self.get("resourceVersionMatch"), self.get("resourceVersion"));
        let mut causes = Vec::new();
        if !match_rule.is_empty() {
            if version.is_empty() && self.get("continue").is_empty() {
                causes
                    .push(forbidden("resourceVersionMatch is forbidden unless resourceVersion is provided"));
            }
            if !self.get("continue").is_empty() {
                causes.push(forbidden("resourceVersionMatch is forbidden when continue is provided"));
            }
            if !matches!(match_rule, "Exact" | "NotOlderThan") {
                causes.push(unsupported(match_rule, r#""Exact", "NotOlderThan", """#));
            }
            if match_rule == "Exact" && version == "0" {
                let why = r#"resourceVersionMatch "exact" is forbidden for resourceVersion "0""#;
                causes.push(forbidden(why));
            }
        }
        if self.find("sendInitialEvents").is_some() {
            let why = "Forbidden: sendInitialEvents is forbidden for list";
            causes.push(StatusCause::new("FieldValueForbidden", "sendInitialEvents", why));
        }
        invalid(causes)
    }

    fn check_watch(&self, initial: Option<bool>, match_rule: &str) -> Result<(), Status> {
        let mut causes = Vec::new();
        if initial.is_some() && match_rule != "NotOlderThan" {
            causes.push(forbidden("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"));
        }
        if !match_rule.is_empty() {
            if initial.is_none() {
                let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
                causes.push(forbidden(why));
            }
            if match_rule != "NotOlderThan" {
                causes.push(unsupported(match_rule, r#""NotOlderThan""#));
            }
            if !self.get("continue").is_empty() {
                causes.push(forbidden("resourceVersionMatch is forbidden when continue is provided"));
            }
        }
        invalid(causes)
    }

    /// Returns all values of a parameter.
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        self.0.iter().filter(|(key, _)| key == name).map(|(_, value)| value.as_str()).collect()
    }

    pub(crate) fn find(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Returns a boolean parameter, or `None` if it is missing.
    pub(crate) fn flag(&self, name: &str) -> Option<bool> {
        self.find(name).map(is_true)
    }

    pub(crate) fn number(&self, name: &str) -> Result<Option<i64>, Status> {
        let Some(text) = self.find(name).filter(|text| !text.is_empty()) else { return Ok(None) };
        let syntax = || format!("strconv.ParseInt: parsing {text:?}: invalid syntax");
        text.parse().map(Some).map_err(|_| Status::bad_request(syntax()))
    }
}

fn parse_version(text: &str) -> Result<u64, String> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let parsed = text.parse().ok().filter(|_| digits);
    parsed.ok_or_else(|| {
        format!(
            "resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
        )
    })
}

fn forbidden(why: &str) -> StatusCause {
    StatusCause::new("FieldValueForbidden", "resourceVersionMatch", format!("Forbidden: {why}"))
}

fn unsupported(value: &str, supported: &str) -> StatusCause {
    let message = format!("Unsupported value: \"{value}\": supported values: {supported}");
    StatusCause::new("FieldValueNotSupported", "resourceVersionMatch", message)
}

fn invalid(causes: Vec<StatusCause>) -> Result<(), Status> {
    if causes.is_empty() {
        return Ok(());
    }
    Err(Status::invalid("meta.k8s.io", "ListOptions", "", causes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_version_is_parsed() {
        let at =
            |query: &str| Query::parse(query).list(true).map(|options| (options.at, options.min_version));
        assert_eq!(at("").unwrap(), (ReadVersion::Newest, None));
        assert_eq!(at("resourceVersion=0&limit=3").unwrap(), (ReadVersion::Newest, None));
        assert_eq!(at("resourceVersion=7").unwrap(), (ReadVersion::Newest, Some(7)));
        assert_eq!(at("resourceVersion=7&limit=2").unwrap(), (ReadVersion::Exact(7), Some(7)));
        assert_eq!(at("resourceVersion=-1").unwrap_err().code, 400);
        assert_eq!(at("resourceVersionMatch=Exact&resourceVersion=0").unwrap_err().code, 422);
    }

    #[test]
    fn watch_without_version_starts_with_existing_objects() {
        let from = |query: &str| Query::parse(query).watch().map(|options| options.from);
        assert_eq!(from("watch=1").unwrap(), WatchStart::ExistingObjects);
        assert_eq!(from("resourceVersion=7").unwrap(), WatchStart::Version(7));
        let at_now = "sendInitialEvents=false&resourceVersionMatch=NotOlderThan";
        assert_eq!(from(at_now).unwrap(), WatchStart::Now);
        assert_eq!(from("sendInitialEvents=true").unwrap_err().code, 422);
        assert_eq!(from("resourceVersion=abc").unwrap_err().code, 500);
    }
}
