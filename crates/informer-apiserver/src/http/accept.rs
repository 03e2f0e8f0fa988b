//! Which form of an answer a client accepts, negotiated as a real server does.
//!
//! Two rounds, with a refusal each: first the media types as such, then what they are asked to carry. Errors are negotiated on
//! their own, since nobody asks for an error as a table.

use informer_objects::status::Status;

/// How bytes are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    Json,
    Yaml,
    Protobuf,
}

/// What is shown of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Carried {
    /// All of them.
    Whole,
    /// `PartialObjectMetadata`, for one object or a watch.
    Metadata(Meta),
    /// `PartialObjectMetadataList`.
    MetadataList(Meta),
    /// Rows of a table.
    Table(Meta),
}

/// The version of `meta.k8s.io` in which something is carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meta {
    V1,
    V1Beta1,
}

/// The form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Form {
    pub(crate) encoding: Encoding,
    pub(crate) carried: Carried,
    /// Indented, for people.
    pub(crate) pretty: bool,
}

/// What a request asks of an endpoint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// Lists can be watched, and say so.
    pub(crate) list: bool,
    pub(crate) watch: bool,
    /// Custom objects have no protobuf.
    pub(crate) custom: bool,
}

impl Meta {
    pub(crate) fn api_version(self) -> &'static str {
        match self {
            Meta::V1 => "meta.k8s.io/v1",
            Meta::V1Beta1 => "meta.k8s.io/v1beta1",
        }
    }
}

impl Form {
    pub(crate) const JSON: Form = Form { encoding: Encoding::Json, carried: Carried::Whole, pretty: false };

    /// The form of an error, whatever was asked for.
    pub(crate) fn of_errors(accept: &str) -> Self {
        if accept.trim().is_empty() {
            return Form::JSON;
        }
        let plain = clauses(accept).into_iter().filter(|clause| clause.value("as").is_none());
        let encoding = plain.flat_map(|clause| clause.encodings()).next();
        match encoding {
            Some(encoding) => Form { encoding, ..Form::JSON },
            None => Form { pretty: true, ..Form::JSON },
        }
    }
}

/// Refuses what no representation here answers to, before anything else is looked at. That is done by the router of a real
/// server, through which custom objects do not go, and to which `application/*` is no name of anything.
pub(crate) fn check(accept: &str, endpoint: Endpoint) -> Result<(), Status> {
    let routed = |clause: &Clause<'_>| clause.media != "application/*" && !clause.encodings().is_empty();
    if endpoint.custom || accept.trim().is_empty() || clauses(accept).iter().any(routed) {
        return Ok(());
    }
    let mut message =
        "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, \
                       application/vnd.kubernetes.protobuf"
            .to_owned();
    if endpoint.list || endpoint.watch {
        message.push_str(", application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch");
    }
    let mut status = Status::new(406, "NotAcceptable", message);
    status.details = Some(Box::default());
    Err(status)
}

/// Picks the first form that can be served, in the order in which the client prefers them.
pub(crate) fn negotiate(accept: &str, endpoint: Endpoint) -> Result<Form, Status> {
    if accept.trim().is_empty() {
        return Ok(Form::JSON);
    }
    for clause in clauses(accept) {
        for encoding in clause.encodings() {
            let Some(carried) = clause.carried(encoding) else { continue };
            let protobuf_of_custom =
                endpoint.custom && encoding == Encoding::Protobuf && carried == Carried::Whole;
            let yaml_stream = endpoint.watch && encoding == Encoding::Yaml;
            if protobuf_of_custom || yaml_stream {
                continue;
            }
            return Ok(Form { encoding, carried, pretty: clause.value("pretty") == Some("1") });
        }
    }
    let types = match endpoint {
        Endpoint { watch: true, custom: false, .. } => {
            "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"
        }
        _ => "application/json, application/yaml, application/vnd.kubernetes.protobuf",
    };
    let message = format!("only the following media types are accepted: {types}");
    Err(Status::new(406, "NotAcceptable", message))
}

/// One entry of an `Accept` header.
struct Clause<'a> {
    media: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
    quality: f32,
}

impl Clause<'_> {
    fn value(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(key, _)| *key == name).map(|(_, value)| *value)
    }

    /// The encodings it stands for, the preferred one first.
    fn encodings(&self) -> Vec<Encoding> {
        match self.media {
            "*/*" | "application/*" => vec![Encoding::Json, Encoding::Yaml, Encoding::Protobuf],
            "application/json" => vec![Encoding::Json],
            "application/yaml" => vec![Encoding::Yaml],
            "application/vnd.kubernetes.protobuf" => vec![Encoding::Protobuf],
            _ => Vec::new(),
        }
    }

    /// What it wants carried; none if that cannot be had.
    fn carried(&self, encoding: Encoding) -> Option<Carried> {
        let Some(kind) = self.value("as") else { return Some(Carried::Whole) };
        let version = match (self.value("g"), self.value("v")) {
            (Some("meta.k8s.io"), Some("v1")) => Meta::V1,
            (Some("meta.k8s.io"), Some("v1beta1")) => Meta::V1Beta1,
            _ => return None,
        };
        match kind {
            "PartialObjectMetadata" => Some(Carried::Metadata(version)),
            "PartialObjectMetadataList" => Some(Carried::MetadataList(version)),
            "Table" if encoding != Encoding::Protobuf => Some(Carried::Table(version)),
            _ => None,
        }
    }
}

/// The entries of a header, the preferred ones first.
fn clauses(accept: &str) -> Vec<Clause<'_>> {
    let mut clauses: Vec<Clause<'_>> = accept
        .split(',')
        .map(|entry| {
            let mut parts = entry.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default();
            let parameters: Vec<(&str, &str)> = parts.filter_map(|part| part.split_once('=')).collect();
            let quality = parameters.iter().find(|(key, _)| *key == "q");
            let quality = quality.and_then(|(_, value)| value.parse().ok()).unwrap_or(1.0);
            Clause { media, parameters, quality }
        })
        .collect();
    clauses.sort_by(|a, b| b.quality.total_cmp(&a.quality));
    clauses
}

#[cfg(test)]
mod tests {
    use super::*;

    const GET: Endpoint = Endpoint { list: false, watch: false, custom: false };

    #[test]
    fn the_first_form_we_have_wins() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        let form = |encoding, carried| Some(Form { encoding, carried, pretty: false });
        for (accept, expected) in [
            ("", form(Encoding::Json, Carried::Whole)),
            ("*/*", form(Encoding::Json, Carried::Whole)),
            ("application/json;q=0.5,application/yaml", form(Encoding::Yaml, Carried::Whole)),
            (table, form(Encoding::Json, Carried::Table(Meta::V1))),
            ("application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io", None),
            (
                "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io,application/json",
                form(Encoding::Json, Carried::Whole),
            ),
            ("application/json;as=Table;v=v9;g=meta.k8s.io", None),
        ] {
            assert_eq!(negotiate(accept, GET).ok(), expected, "{accept}");
        }
        let custom = Endpoint { custom: true, ..GET };
        assert_eq!(negotiate("application/vnd.kubernetes.protobuf", custom).ok(), None);
        assert_eq!(negotiate("application/yaml", Endpoint { watch: true, ..GET }).ok(), None);
    }

    #[test]
    fn errors_are_never_tables() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        assert_eq!(Form::of_errors(table), Form { pretty: true, ..Form::JSON });
        assert_eq!(Form::of_errors(&format!("{table},application/json")), Form::JSON);
        assert_eq!(Form::of_errors("application/yaml").encoding, Encoding::Yaml);
        assert!(check("text/html", GET).is_err());
        assert!(check("application/*", GET).is_err());
        assert!(check("application/*,*/*", GET).is_ok());
        assert!(check("text/html", Endpoint { custom: true, ..GET }).is_ok());
    }
}
