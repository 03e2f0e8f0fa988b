//! Query parameters of lists, watches and deletions, read and checked as a real server does.
//!
//! Of a repeated parameter the first counts, unknown ones are ignored. What is wrong is refused with the server's own words.

use informer_objects::status::{Status, StatusCause};

use crate::model::{From, ReadVersion, Token};

/// What a parameter says that can only be true or false: anything but these is true.
pub(crate) fn is_true(value: &str) -> bool {
    !value.eq_ignore_ascii_case("false") && value != "0"
}

/// The parameters of a request.
#[derive(Debug, Clone, Default)]
pub(crate) struct Query(Vec<(String, String)>);

/// What a list asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ListOptions {
    pub(crate) at: ReadVersion,
    /// A version that must be there first.
    pub(crate) reach: Option<u64>,
    /// Zero for no limit.
    pub(crate) limit: usize,
}

/// What a watch asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WatchOptions {
    pub(crate) from: From,
    /// A version that initial events must have reached.
    pub(crate) reach: Option<u64>,
    pub(crate) bookmarks: bool,
    /// Negative ones end at once; none means the server's own.
    pub(crate) timeout: Option<i64>,
}

impl Query {
    pub(crate) fn parse(query: &str) -> Self {
        Query(form_urlencoded::parse(query.as_bytes()).into_owned().collect())
    }

    /// The value of a parameter, empty if it is not there.
    pub(crate) fn get(&self, name: &str) -> &str {
        self.find(name).unwrap_or_default()
    }

    pub(crate) fn is_watch(&self) -> bool {
        self.flag("watch").unwrap_or(false)
    }

    /// Whoever takes any version of what is cached gets it whole.
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
            return Ok(ListOptions { at: ReadVersion::Token(token), reach: None, limit });
        }
        if version.is_empty() {
            return Ok(ListOptions { at: ReadVersion::Newest, reach: None, limit });
        }
        let number = parse_version(version)
            .map_err(|error| Status::bad_request(format!("invalid resource version: {error}")))?;
        if number == 0 {
            return Ok(ListOptions { at: ReadVersion::Newest, reach: None, limit });
        }
        let exact = match self.get("resourceVersionMatch") {
            "Exact" => true,
            "NotOlderThan" => false,
            _ => limit > 0,
        };
        let at = if exact { ReadVersion::Exact(number) } else { ReadVersion::Newest };
        Ok(ListOptions { at, reach: Some(number), limit })
    }

    pub(crate) fn watch(&self) -> Result<WatchOptions, Status> {
        let timeout = self.number("timeoutSeconds")?;
        let version = self.get("resourceVersion");
        let mut initial = self.flag("sendInitialEvents");
        let mut rule = self.get("resourceVersionMatch");
        // Without a version a watch has always begun with what is there.
        if initial.is_none() && rule.is_empty() && matches!(version, "" | "0") {
            (initial, rule) = (Some(true), "NotOlderThan");
        }
        self.check_watch(initial, rule)?;
        let number = if version.is_empty() { Ok(0) } else { parse_version(version) };
        let number = number.map_err(Status::internal)?;
        let (from, reach) = match (initial, number) {
            (Some(true), 0) => (From::Start, None),
            (Some(true), number) => (From::Start, Some(number)),
            (_, 0) => (From::Now, None),
            (_, number) => (From::Version(number), None),
        };
        let bookmarks = self.flag("allowWatchBookmarks").unwrap_or(false);
        Ok(WatchOptions { from, reach, bookmarks, timeout: timeout.filter(|seconds| *seconds != 0) })
    }

    /// A version on a read of one object: it must have been reached.
    pub(crate) fn reach(&self) -> Result<Option<u64>, Status> {
        match self.get("resourceVersion") {
            "" | "0" => Ok(None),
            version => parse_version(version).map(Some).map_err(Status::internal),
        }
    }

    fn check_list(&self) -> Result<(), Status> {
        let (rule, version) = (self.get("resourceVersionMatch"), self.get("resourceVersion"));
        let mut causes = Vec::new();
        if !rule.is_empty() {
            if version.is_empty() && self.get("continue").is_empty() {
                causes
                    .push(forbidden("resourceVersionMatch is forbidden unless resourceVersion is provided"));
            }
            if !self.get("continue").is_empty() {
                causes.push(forbidden("resourceVersionMatch is forbidden when continue is provided"));
            }
            if !matches!(rule, "Exact" | "NotOlderThan") {
                causes.push(unsupported(rule, r#""Exact", "NotOlderThan", """#));
            }
            if rule == "Exact" && version == "0" {
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

    fn check_watch(&self, initial: Option<bool>, rule: &str) -> Result<(), Status> {
        let mut causes = Vec::new();
        if initial.is_some() && rule != "NotOlderThan" {
            causes.push(forbidden("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"));
        }
        if !rule.is_empty() {
            if initial.is_none() {
                let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
                causes.push(forbidden(why));
            }
            if rule != "NotOlderThan" {
                causes.push(unsupported(rule, r#""NotOlderThan""#));
            }
            if !self.get("continue").is_empty() {
                causes.push(forbidden("resourceVersionMatch is forbidden when continue is provided"));
            }
        }
        invalid(causes)
    }

    /// All values of a parameter.
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        self.0.iter().filter(|(key, _)| key == name).map(|(_, value)| value.as_str()).collect()
    }

    pub(crate) fn find(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Any value but `false` and `0` is true.
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
    fn a_list_knows_its_version() {
        let at = |query: &str| Query::parse(query).list(true).map(|options| (options.at, options.reach));
        assert_eq!(at("").unwrap(), (ReadVersion::Newest, None));
        assert_eq!(at("resourceVersion=0&limit=3").unwrap(), (ReadVersion::Newest, None));
        assert_eq!(at("resourceVersion=7").unwrap(), (ReadVersion::Newest, Some(7)));
        assert_eq!(at("resourceVersion=7&limit=2").unwrap(), (ReadVersion::Exact(7), Some(7)));
        assert_eq!(at("resourceVersion=-1").unwrap_err().code, 400);
        assert_eq!(at("resourceVersionMatch=Exact&resourceVersion=0").unwrap_err().code, 422);
    }

    #[test]
    fn a_watch_without_a_version_begins_with_what_is_there() {
        let from = |query: &str| Query::parse(query).watch().map(|options| options.from);
        assert_eq!(from("watch=1").unwrap(), From::Start);
        assert_eq!(from("resourceVersion=7").unwrap(), From::Version(7));
        let at_now = "sendInitialEvents=false&resourceVersionMatch=NotOlderThan";
        assert_eq!(from(at_now).unwrap(), From::Now);
        assert_eq!(from("sendInitialEvents=true").unwrap_err().code, 422);
        assert_eq!(from("resourceVersion=abc").unwrap_err().code, 500);
    }
}
