//! Which form of an answer a client accepts: JSON, or JSON with nothing but metadata.

use crate::model::Status;

/// The form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Json,
    /// `PartialObjectMetadata`, for one object or a watch.
    Metadata,
    /// `PartialObjectMetadataList`.
    MetadataList,
}

/// Picks the first form that can be served, in the order in which the client names them.
pub(crate) fn negotiate(accept: &str) -> Result<Form, Status> {
    if accept.trim().is_empty() {
        return Ok(Form::Json);
    }
    let mut known_type = false;
    for entry in accept.split(',') {
        let mut parts = entry.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        if !matches!(media, "application/json" | "application/*" | "*/*") {
            continue;
        }
        known_type = true;
        let parameters: Vec<(&str, &str)> = parts.filter_map(|part| part.split_once('=')).collect();
        let value = |name: &str| parameters.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
        match (value("as"), value("g"), value("v")) {
            (None, ..) => return Ok(Form::Json),
            (Some("PartialObjectMetadata"), Some("meta.k8s.io"), Some("v1")) => return Ok(Form::Metadata),
            (Some("PartialObjectMetadataList"), Some("meta.k8s.io"), Some("v1")) => {
                return Ok(Form::MetadataList);
            }
            _ => {}
        }
    }
    let message = if known_type {
        "only the following media types are accepted: application/json"
    } else {
        "406: Not Acceptable\n\nAvailable representations: application/json, application/json;stream=watch"
    };
    Err(Status::new(406, "NotAcceptable", message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_form_we_have_wins() {
        let metadata = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        for (accept, expected) in [
            ("", Some(Form::Json)),
            ("*/*", Some(Form::Json)),
            ("application/vnd.kubernetes.protobuf,application/json", Some(Form::Json)),
            ("application/vnd.kubernetes.protobuf", None),
            (metadata, Some(Form::Metadata)),
            ("application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", Some(Form::MetadataList)),
            ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", Some(Form::Json)),
            ("application/json;as=Table;v=v1;g=meta.k8s.io", None),
        ] {
            assert_eq!(negotiate(accept).ok(), expected, "{accept}");
        }
    }
}
