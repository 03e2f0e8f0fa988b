//! Negotiation of the response format from the `Accept` header, as in kube-apiserver.
//!
//! Negotiation has two steps, each with its own error: [`check`] looks for an available media type,
//! [`negotiate`] for an available combination of encoding and content. [`ResponseFormat::of_errors`]
//! negotiates the format of errors separately, since an error is never a table or `PartialObjectMetadata`.

use informer_objects::status::Status;

/// The encoding of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    Json,
    Yaml,
    Protobuf,
}

/// The content of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    /// Whole objects.
    Whole,
    /// `PartialObjectMetadata`, for one object or a watch.
    Metadata(Meta),
    /// `PartialObjectMetadataList`.
    MetadataList(Meta),
    /// A table with one row per object.
    Table(Meta),
}

/// The version of `meta.k8s.io` in the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meta {
    V1,
    V1Beta1,
}

/// The format of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ResponseFormat {
    pub(crate) encoding: Encoding,
    pub(crate) content: Content,
    /// Whether the JSON is indented.
    pub(crate) pretty: bool,
}

/// The properties of a request that affect negotiation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// Whether the request is a list. The error of [`check`] then also names the media types of watches, as
    /// for a watch.
    pub(crate) list: bool,
    pub(crate) watch: bool,
    /// Whether the resource is custom. Custom objects have no protobuf encoding.
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

impl ResponseFormat {
    pub(crate) const JSON: ResponseFormat =
        ResponseFormat { encoding: Encoding::Json, content: Content::Whole, pretty: false };

    /// Returns the format of an error: the first available encoding in the header, or JSON. The JSON is
    /// indented if the header is not empty and contains no available encoding. Entries with `as=` are
    /// ignored.
    pub(crate) fn of_errors(accept: &str) -> Self {
        if accept.trim().is_empty() {
            return ResponseFormat::JSON;
        }
        let plain = clauses(accept).into_iter().filter(|clause| clause.value("as").is_none());
        let encoding = plain.flat_map(|clause| clause.encodings()).next();
        match encoding {
            Some(encoding) => ResponseFormat { encoding, ..ResponseFormat::JSON },
            None => ResponseFormat { pretty: true, ..ResponseFormat::JSON },
        }
    }
}

/// Rejects a request that accepts no available media type.
///
/// In kube-apiserver the router rejects such requests. It does not recognize `application/*`. Requests for
/// custom resources bypass the router and are never rejected here.
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

/// Returns the first available format, in the client's order of preference.
pub(crate) fn negotiate(accept: &str, endpoint: Endpoint) -> Result<ResponseFormat, Status> {
    if accept.trim().is_empty() {
        return Ok(ResponseFormat::JSON);
    }
    for clause in clauses(accept) {
        for encoding in clause.encodings() {
            let Some(content) = clause.content(encoding) else { continue };
            let protobuf_of_custom =
                endpoint.custom && encoding == Encoding::Protobuf && content == Content::Whole;
            let yaml_stream = endpoint.watch && encoding == Encoding::Yaml;
            if protobuf_of_custom || yaml_stream {
                continue;
            }
            return Ok(ResponseFormat { encoding, content, pretty: clause.value("pretty") == Some("1") });
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

    /// Returns the encodings that match the media type, in the server's order of preference.
    fn encodings(&self) -> Vec<Encoding> {
        match self.media {
            "*/*" | "application/*" => vec![Encoding::Json, Encoding::Yaml, Encoding::Protobuf],
            "application/json" => vec![Encoding::Json],
            "application/yaml" => vec![Encoding::Yaml],
            "application/vnd.kubernetes.protobuf" => vec![Encoding::Protobuf],
            _ => Vec::new(),
        }
    }

    /// Returns the requested content, or `None` if it is not available.
    fn content(&self, encoding: Encoding) -> Option<Content> {
        let Some(kind) = self.value("as") else { return Some(Content::Whole) };
        let version = match (self.value("g"), self.value("v")) {
            (Some("meta.k8s.io"), Some("v1")) => Meta::V1,
            (Some("meta.k8s.io"), Some("v1beta1")) => Meta::V1Beta1,
            _ => return None,
        };
        match kind {
            "PartialObjectMetadata" => Some(Content::Metadata(version)),
            "PartialObjectMetadataList" => Some(Content::MetadataList(version)),
            "Table" if encoding != Encoding::Protobuf => Some(Content::Table(version)),
            _ => None,
        }
    }
}

/// Parses the entries of the header, in the client's order of preference.
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
    fn first_available_format_is_selected() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        let format = |encoding, content| Some(ResponseFormat { encoding, content, pretty: false });
        for (accept, expected) in [
            ("", format(Encoding::Json, Content::Whole)),
            ("*/*", format(Encoding::Json, Content::Whole)),
            ("application/json;q=0.5,application/yaml", format(Encoding::Yaml, Content::Whole)),
            (table, format(Encoding::Json, Content::Table(Meta::V1))),
            ("application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io", None),
            (
                "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io,application/json",
                format(Encoding::Json, Content::Whole),
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
        assert_eq!(ResponseFormat::of_errors(table), ResponseFormat { pretty: true, ..ResponseFormat::JSON });
        assert_eq!(ResponseFormat::of_errors(&format!("{table},application/json")), ResponseFormat::JSON);
        assert_eq!(ResponseFormat::of_errors("application/yaml").encoding, Encoding::Yaml);
        assert!(check("text/html", GET).is_err());
        assert!(check("application/*", GET).is_err());
        assert!(check("application/*,*/*", GET).is_ok());
        assert!(check("text/html", Endpoint { custom: true, ..GET }).is_ok());
    }
}
