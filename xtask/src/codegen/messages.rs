//! Renders the types of Kubernetes with their fields in protobuf and JSON.
//!
//! Numbers and types come from `.proto` files; JSON names and optionality come from the Go types; the rules of patches,
//! ownership and defaults come from the `OpenAPI` documents. It is an error if the three have different fields. The
//! table contains only messages that are reachable from a kind.

use std::collections::{BTreeMap, BTreeSet};

use super::GENERATED;
use super::layout::{Row, table, text};
use super::proto::{Label, Proto, ProtoField};
use super::structs::{GoField, Struct};
use super::types::{Property, Types};

/// Messages that are a single value in JSON, and their variants of `Wire`.
const VALUES: &[(&str, &str)] = &[
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON", "Raw"),
    ("io.k8s.apimachinery.pkg.api.resource.Quantity", "Quantity"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1", "Fields"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime", "MicroTime"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.Time", "Time"),
    ("io.k8s.apimachinery.pkg.runtime.RawExtension", "Raw"),
    ("io.k8s.apimachinery.pkg.util.intstr.IntOrString", "IntOrString"),
];

/// Suffixes of messages with two representations in JSON, and their constructors of `Wire`. One representation is
/// the message with the suffix `Props`.
const CHOICES: &[(&str, &str)] =
    &[("PropsOrArray", "or_list"), ("PropsOrBool", "or_boolean"), ("PropsOrStringArray", "or_strings")];

/// Packages without resources whose kinds occur in responses, and the `apiVersion` of these kinds.
const RESPONSE_PACKAGES: &[(&str, &str)] = &[
    ("io.k8s.api.apidiscovery.v2", "apidiscovery.k8s.io/v2"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1beta1", "meta.k8s.io/v1beta1"),
];

/// The package whose kinds belong to every group, except `PartialObjectMetadata` and its list.
const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

/// Prefixes of the wire types that are structs in Go, which `omitempty` never omits.
const STRUCTS: &[&str] = &["of(", "or_", "Quantity", "Time", "MicroTime", "IntOrString", "Raw", "Fields"];

/// A Go package of Kubernetes.
pub(super) struct Package {
    pub(super) proto: Proto,
    pub(super) structs: BTreeMap<String, Struct>,
}

/// All messages, by name.
pub(super) struct Messages<'a> {
    all: BTreeMap<String, Message<'a>>,
    /// Messages that are reachable from a kind.
    reachable: BTreeSet<String>,
    /// `apiVersion` of the kinds in a package.
    api_versions: BTreeMap<String, String>,
    types: &'a Types,
}

struct Message<'a> {
    fields: &'a BTreeMap<u16, ProtoField>,
    /// Its Go type, if it has one.
    of: Option<&'a Struct>,
}

impl<'a> Messages<'a> {
    /// Collects the messages of the packages that contain one of `types`.
    pub(super) fn read(packages: &'a [Package], types: &'a Types) -> Self {
        let mut api_versions = types.api_versions();
        let response_packages =
            RESPONSE_PACKAGES.iter().map(|(package, version)| ((*package).to_owned(), (*version).to_owned()));
        api_versions.extend(response_packages);
        let mut wanted: BTreeSet<&str> = RESPONSE_PACKAGES.iter().map(|(package, _)| *package).collect();
        wanted.extend(types.names().filter_map(|name| Some(name.rsplit_once('.')?.0)));
        let mut messages = Messages { all: BTreeMap::new(), reachable: BTreeSet::new(), api_versions, types };
        let mut kinds = Vec::new();
        // `type X v1.X` in a package of another version has the fields of version 1.
        let of_version_1 = |package: &str, name: &str| {
            let package = format!("{}.v1", package.rsplit_once('.')?.0);
            packages.iter().find(|other| other.proto.package == package)?.structs.get(name)
        };
        for Package { proto, structs } in packages {
            for (name, fields) in &proto.messages {
                let of = structs.get(name).or_else(|| of_version_1(&proto.package, name));
                let name = format!("{}.{name}", proto.package);
                if wanted.contains(proto.package.as_str()) && of.is_some_and(|of| of.is_kind) {
                    kinds.push(name.clone());
                }
                messages.all.insert(name, Message { fields, of });
            }
        }
        messages.mark_reachable(kinds);
        messages
    }

    /// Marks messages, and all messages of their fields, as reachable.
    fn mark_reachable(&mut self, mut names: Vec<String>) {
        while let Some(name) = names.pop() {
            let Some(message) = self.all.get(&name) else { continue };
            if value(&name).is_none() && !message.is_list() && choice(&name).is_none() {
                if !self.reachable.insert(name) {
                    continue;
                }
            } else if let Some((_, of)) = choice(&name) {
                names.push(of);
                continue;
            }
            names.extend(message.fields.values().map(|field| field.of.clone()));
        }
    }

    pub(super) fn render(&self, version: &str) -> Result<String, String> {
        let mut rows = Vec::new();
        for (name, message) in self.all.iter().filter(|(name, _)| self.reachable.contains(*name)) {
            rows.push(self.row(name, message).map_err(|reason| format!("{name}: {reason}"))?);
        }
        Ok(format!(
            "{GENERATED}\n\
             //! The types of Kubernetes {version} with their fields in protobuf and JSON, sorted by name. Includes list kinds.\n\
             \n\
             use crate::rules::rules;\n\
             use crate::wire::Wire::*;\n\
             use crate::wire::{{Message, kind, message, of, or_boolean, or_list, or_strings, part}};\n\
             \n\
             /// Every protobuf message of Kubernetes {version} that is a kind or part of one, sorted by name.\n\
             {}",
            table("pub static MESSAGES: &[Message]", &rows)
        ))
    }

    fn row(&self, name: &str, message: &Message<'_>) -> Result<Row, String> {
        let (mut parts, mut has_nulls) = (Vec::new(), false);
        let of = message.of.ok_or("has no Go struct")?;
        for (number, field) in message.fields {
            let go_field = of.fields.get(number).ok_or_else(|| format!("{} has no Go field", field.name))?;
            let part = self
                .part(name, *number, field, go_field)
                .map_err(|reason| format!("{}: {reason}", field.name))?;
            has_nulls |= part.1;
            parts.push(part.0);
        }
        let extra = of.fields.iter().find(|(number, _)| !message.fields.contains_key(number));
        if let Some((number, GoField { json, .. })) = extra {
            return Err(format!("{json} ({number}) exists only in Go"));
        }
        self.check_fields(name)?;
        let start = if of.is_kind {
            format!("kind({}, {}, &[", text(name), text(self.api_version(name)?))
        } else {
            format!("message({}, &[", text(name))
        };
        let flags = [("])", true), (".nulls()", has_nulls), (".atomic()", self.types.is_atomic(name))];
        Ok(Row::new(start, parts, set(flags)))
    }

    /// Checks that the message has every field of the documents, except the type members of a kind.
    fn check_fields(&self, name: &str) -> Result<(), String> {
        let known = self.json_names(name);
        let is_kind = self.all.get(name).and_then(|message| message.of).is_some_and(|of| of.is_kind);
        let is_type = |field: &str| is_kind && ["apiVersion", "kind"].contains(&field);
        let mut fields = self.types.fields(name).into_iter().flatten();
        match fields.find(|field| !known.contains(*field) && !is_type(field)) {
            Some(field) => Err(format!("{field} exists only in the documents")),
            None => Ok(()),
        }
    }

    /// Returns the names of the fields in JSON, including the fields of inline messages.
    fn json_names(&self, name: &str) -> BTreeSet<&str> {
        let Some(message) = self.all.get(name) else { return BTreeSet::new() };
        let mut names = BTreeSet::new();
        for (number, field) in message.fields {
            match message.of.and_then(|of| of.fields.get(number)) {
                Some(go_field) if go_field.json.is_empty() => names.extend(self.json_names(&field.of)),
                go_field => names.extend(go_field.map(|go_field| go_field.json.as_str())),
            }
        }
        names
    }

    /// Returns the properties of a field in the documents.
    ///
    /// The documents do not have most of the inline messages: their fields are fields of the types around them.
    fn property(&self, name: &str, field: &str) -> Result<Option<Property>, String> {
        let mut found = self.types.property(name, field)?;
        for outer in self.types_around(name) {
            let Some(property) = self.property(outer, field)? else { continue };
            if found.as_ref().is_some_and(|found| *found != property) {
                return Err(format!("differs in {outer}: {property:?} instead of {found:?}"));
            }
            found = Some(property);
        }
        Ok(found)
    }

    /// Returns the messages in which a message is inline.
    fn types_around(&self, name: &str) -> impl Iterator<Item = &str> {
        let is_around = move |message: &Message<'_>| {
            let is_inline = |(number, field): (&u16, &GoField)| {
                field.json.is_empty() && message.fields.get(number).is_some_and(|field| field.of == name)
            };
            message.of.is_some_and(|of| of.fields.iter().any(is_inline))
        };
        self.all.iter().filter(move |(_, message)| is_around(message)).map(|(outer, _)| outer.as_str())
    }

    /// Returns the `apiVersion` of a kind.
    fn api_version(&self, name: &str) -> Result<&str, String> {
        let found = match name.rsplit_once('.') {
            Some((META, kind)) if kind.starts_with("PartialObjectMetadata") => Some("meta.k8s.io/v1"),
            Some((META, _)) => Some("v1"),
            Some((package, _)) => self.api_versions.get(package).map(String::as_str),
            None => None,
        };
        found.ok_or_else(|| "has no known group".to_owned())
    }

    /// Renders a field, and returns whether its JSON is `null` if it is absent.
    fn part(
        &self,
        message: &str,
        number: u16,
        field: &ProtoField,
        go_field: &GoField,
    ) -> Result<(String, bool), String> {
        if go_field.json == "-" {
            return Err("has no JSON name".to_owned());
        }
        let wire = self.wire(&field.of)?;
        let (wire, pointer) = match field.label {
            // A list in its own message is absent if it is nil in Go.
            Label::Optional => (wire.clone(), go_field.pointer || wire == "Strings"),
            Label::Repeated => (format!("List(&{wire})"), false),
            Label::Map => (format!("Map(&{wire})"), false),
        };
        let is_struct = !go_field.pointer && STRUCTS.iter().any(|prefix| wire.starts_with(prefix));
        let always = !go_field.omitzero && (is_struct || !go_field.omitempty);
        let is_null = always && (pointer || field.label != Label::Optional || wire == "Bytes");
        let property = self.property(message, &go_field.json)?;
        let shape = self.shape(field);
        if let Some(property) = property.as_ref().filter(|property| property.shape != shape) {
            return Err(format!("is {shape} in protobuf and {} in the documents", property.shape));
        }
        let required = property.as_ref().is_some_and(|property| property.required);
        let flags = [
            (".pointer()", pointer),
            (".required()", required),
            (".always()", always && !required),
            (".omitted()", required && !always),
        ];
        let mut row = format!("part({number}, {}, {wire}){}", text(&go_field.json), set(flags));
        if let Some(Property { default, mut rules, .. }) = property {
            let implied = implied_default(&wire, required).filter(|_| always && !pointer);
            match default {
                Some(default) if implied != Some(&default) => {
                    rules.extend([format!(".default({default:?})")]);
                }
                None if implied.is_some() => return Err(format!("has no default, expected {implied:?}")),
                _ => {}
            }
            if !rules.is_empty() {
                row.extend([format!(".rules(&rules(){rules})")]);
            }
        }
        Ok((row, is_null))
    }

    /// Returns the shape of a field as in [`Property`].
    fn shape(&self, field: &ProtoField) -> String {
        let of = field.of.as_str();
        let shape = match scalar(of).or_else(|| value(of)) {
            Some("Raw" | "Fields") => "Any",
            Some(value) => value,
            None if choice(of).is_some() => "Any",
            None if self.all.get(of).is_some_and(Message::is_list) => "List(String)",
            None => of,
        };
        match field.label {
            Label::Optional => shape.to_owned(),
            Label::Repeated => format!("List({shape})"),
            Label::Map => format!("Map({shape})"),
        }
    }

    fn wire(&self, of: &str) -> Result<String, String> {
        if let Some(variant) = scalar(of).or_else(|| value(of)) {
            return Ok(variant.to_owned());
        }
        if let Some((variant, of)) = choice(of) {
            return Ok(format!("{variant}({})", self.id(&of)?));
        }
        match self.all.get(of) {
            Some(message) if message.is_list() => Ok("Strings".to_owned()),
            _ => Ok(format!("of({})", self.id(of)?)),
        }
    }

    /// Returns the index of the message of a kind.
    pub(super) fn of_kind(&self, group: &str, version: &str, kind: &str) -> Option<usize> {
        self.id(self.types.of_kind(group, version, kind)?).ok()
    }

    /// Returns the index of a message in the table.
    fn id(&self, name: &str) -> Result<usize, String> {
        let position = self.reachable.iter().position(|known| known == name);
        position.ok_or_else(|| format!("refers to the unknown message `{name}`"))
    }
}

impl Message<'_> {
    /// Returns whether the message only wraps a list of strings, such as `ExtraValue`.
    fn is_list(&self) -> bool {
        let only = self.fields.values().next().filter(|_| self.fields.len() == 1);
        self.of.is_none()
            && only.is_some_and(|field| {
                (field.name.as_str(), field.label, field.of.as_str()) == ("items", Label::Repeated, "string")
            })
    }
}

/// Joins the texts whose condition holds.
fn set<const N: usize>(texts: [(&str, bool); N]) -> String {
    texts.into_iter().filter(|(_, is_set)| *is_set).map(|(text, _)| text).collect()
}

/// Returns the default of a field that is always written and is not a pointer, as `informer-schema` derives it.
fn implied_default(wire: &str, required: bool) -> Option<&'static str> {
    match wire {
        _ if wire.starts_with("of(") => Some("{}"),
        "String" if required => Some("\"\""),
        "Int32" | "Int64" if required => Some("0"),
        "Boolean" if required => Some("false"),
        _ => None,
    }
}

/// Returns the variant of `Wire` of a scalar type.
fn scalar(name: &str) -> Option<&'static str> {
    Some(match name {
        "bool" => "Boolean",
        "bytes" => "Bytes",
        "double" => "Double",
        "int32" => "Int32",
        "int64" => "Int64",
        "string" => "String",
        _ => return None,
    })
}

fn value(name: &str) -> Option<&'static str> {
    VALUES.iter().find(|(known, _)| *known == name).map(|(_, variant)| *variant)
}

/// Returns the constructor of `Wire` for a message with two representations, and the message that is one of them.
fn choice(name: &str) -> Option<(&'static str, String)> {
    CHOICES.iter().find_map(|(suffix, variant)| {
        let front = name.strip_suffix(suffix)?;
        Some((*variant, format!("{front}Props")))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::structs;
    use super::*;

    fn package(proto: &str, go: &str) -> Package {
        Package {
            proto: Proto::parse(&format!("package k8s.io.a;\n{proto}")).unwrap(),
            structs: structs::parse(go),
        }
    }

    fn rendered(proto: &str, go: &str) -> Result<String, String> {
        let string = json!({"type": "string"});
        let spec = json!({"$ref": "#/components/schemas/io.k8s.a.Spec"});
        let pod = json!({
            "properties": {"kind": string, "spec": spec, "verbs": {"type": "array", "items": string}},
            "required": ["verbs"],
            "x-kubernetes-group-version-kind": [{"group": "a.io", "version": "v1", "kind": "Pod"}],
        });
        let schemas = json!({"io.k8s.a.Pod": pod, "io.k8s.a.Spec": {"x-kubernetes-map-type": "atomic"}});
        let types = Types::read(&[json!({"components": {"schemas": schemas}})]);
        Messages::read(&[package(proto, go)], &types).render("1.36")
    }

    const GO: &str = "\
type Pod struct {
\tTypeMeta `json:\",inline\"`
\tSpec *Spec `json:\"spec,omitempty\" protobuf:\"bytes,1,opt,name=spec\"`
\tVerbs Verbs `json:\"verbs\" protobuf:\"bytes,2,opt,name=verbs\"`
\tTimes map[string]Time `json:\"times,omitempty\" protobuf:\"bytes,3,opt,name=times\"`
\tPort intstr.IntOrString `json:\"port,omitempty\" protobuf:\"bytes,4,opt,name=port\"`
}
type Spec struct{}
type Other struct{}
";
    const PROTO: &str = "\
message Pod {
  optional Spec spec = 1;
  optional Verbs verbs = 2;
  map<string, .k8s.io.apimachinery.pkg.apis.meta.v1.Time> times = 3;
  optional .k8s.io.apimachinery.pkg.util.intstr.IntOrString port = 4;
}
message Spec {
}
message Other {
}
message Verbs {
  repeated string items = 1;
}
";

    #[test]
    fn messages_are_rendered_from_proto_and_go() {
        let text = rendered(PROTO, GO).unwrap();
        let lines = [
            r#"kind("io.k8s.a.Pod", "a.io/v1", &["#,
            r#"    part(1, "spec", of(1)).pointer(),"#,
            r#"    part(2, "verbs", Strings).pointer().required(),"#,
            r#"    part(3, "times", Map(&Time)),"#,
            r#"    part(4, "port", IntOrString).always(),"#,
            "]).nulls(),",
            r#"message("io.k8s.a.Spec", &[]).atomic(),"#,
        ];
        for line in lines {
            assert!(text.contains(line), "{line}\n{text}");
        }
        assert!(!text.contains("Other"), "{text}");
    }

    #[test]
    fn different_fields_in_proto_and_go_are_an_error() {
        let less = PROTO.replace("  optional Spec spec = 1;\n", "");
        assert!(rendered(&less, GO).unwrap_err().contains("spec (1) exists only in Go"));
        let other = GO.replace("bytes,1", "bytes,9");
        assert!(rendered(PROTO, &other).unwrap_err().contains("spec has no Go field"));
    }

    #[test]
    fn different_fields_in_proto_and_documents_are_an_error() {
        let other = PROTO.replace("optional Spec spec", "optional string spec");
        let error = rendered(&other, GO).unwrap_err();
        assert!(error.contains("is String in protobuf and io.k8s.a.Spec in the documents"), "{error}");
        let (proto, go) =
            (PROTO.replace("  optional Spec spec = 1;\n", ""), GO.replacen("\tSpec", "\t// Spec", 1));
        assert!(rendered(&proto, &go).unwrap_err().contains("spec exists only in the documents"));
    }
}
