//! Renders the groups and resources that Kubernetes serves, from its discovery documents.
//!
//! Resources are sorted by group, version and plural; groups have the server's order of preference.
//! Subresources are part of the row of their resource.

use std::collections::BTreeMap;

use serde_json::Value;

use super::GENERATED;
use super::layout::{Row, table, text as literal, texts as literals};
use super::messages::Messages;

pub(super) fn render(documents: &[Value], messages: &Messages<'_>, version: &str) -> Result<String, String> {
    let mut rows = BTreeMap::new();
    for document in documents.iter().filter(|document| document["kind"] == "APIResourceList") {
        add_rows(document, messages, &mut rows)?;
    }
    let groups = documents.iter().find(|document| document["kind"] == "APIGroupList");
    let groups = groups_of(groups.ok_or("no document with the list of groups")?);
    Ok(format!(
        "{GENERATED}\n\
         //! The groups and resources that Kubernetes {version} serves.\n\
         \n\
         use crate::shapes::{{Group, RESOURCE, Resource, Subresource, of}};\n\
         \n\
         /// Every group of Kubernetes {version}: the core group first, then the others in the server's order of preference.\n\
         {}\
         \n\
         /// Every resource of Kubernetes {version}, including versions that are disabled by default. Sorted by group,\n\
         /// version and plural.\n\
         {}",
        table("pub static GROUPS: &[Group]", &groups),
        table("pub static RESOURCES: &[Resource]", &rows.into_values().collect::<Vec<_>>())
    ))
}

fn groups_of(document: &Value) -> Vec<Row> {
    let row = |name: &str, versions: &[String]| {
        let row = format!("Group {{ name: {}, versions: {} }}", literal(name), literals(versions));
        Row::new(row, Vec::new(), "")
    };
    let mut rows = vec![row("", &["v1".to_owned()])];
    for group in array(&document["groups"]) {
        let versions: Vec<String> =
            array(&group["versions"]).iter().map(|version| text(&version["version"]).to_owned()).collect();
        rows.push(row(text(&group["name"]), &versions));
    }
    rows
}

type Rows = BTreeMap<[String; 3], Row>;

fn add_rows(document: &Value, messages: &Messages<'_>, rows: &mut Rows) -> Result<(), String> {
    let group_version = text(&document["groupVersion"]);
    let (group, version) = group_version.split_once('/').unwrap_or(("", group_version));
    let entries = array(&document["resources"]);
    for entry in entries.iter().filter(|entry| !text(&entry["name"]).contains('/')) {
        let plural = text(&entry["name"]);
        let kind = text(&entry["kind"]);
        let id = messages.of_kind(group, version, kind);
        let id = id.ok_or_else(|| format!("{group_version}: the type of {plural} is unknown"))?;
        let subresources = entries.iter().filter_map(|entry| {
            let (resource, name) = text(&entry["name"]).split_once('/')?;
            (resource == plural).then(|| subresource([group, version], name, entry, messages))
        });
        let mut row = format!(
            "Resource {{ group: {group:?}, version: {version:?}, kind: {kind:?}, plural: {plural:?}, singular: {:?}, ",
            text(&entry["singularName"])
        );
        if entry["namespaced"] == true {
            row += "namespaced: true, ";
        }
        for (field, key) in [("short_names", "shortNames"), ("categories", "categories"), ("verbs", "verbs")]
        {
            let values = texts(&entry[key]);
            if !values.is_empty() {
                row.extend([format!("{field}: {}, ", literals(&values))]);
            }
        }
        let hash = text(&entry["storageVersionHash"]);
        if !hash.is_empty() {
            row.extend([format!("storage_hash: {hash:?}, ")]);
        }
        row.extend([format!("type_id: Some(of({id})), ")]);
        let subresources: Vec<String> = subresources.collect();
        let row = if subresources.is_empty() {
            Row::new(row, subresources, "..RESOURCE }")
        } else {
            Row::new(row + "subresources: &[", subresources, "], ..RESOURCE }")
        };
        rows.insert([group, version, plural].map(str::to_owned), row);
    }
    Ok(())
}

/// Renders a subresource. Its kind may belong to another group or version than its resource.
fn subresource(resource: [&str; 2], name: &str, entry: &Value, messages: &Messages<'_>) -> String {
    let group = entry["group"].as_str().unwrap_or(resource[0]);
    let version = entry["version"].as_str().unwrap_or(resource[1]);
    let (kind, verbs) = (text(&entry["kind"]), literals(&texts(&entry["verbs"])));
    let type_id =
        messages.of_kind(group, version, kind).map_or("None".to_owned(), |id| format!("Some(of({id}))"));
    format!(
        "Subresource {{ name: {name:?}, group: {group:?}, version: {version:?}, kind: {kind:?}, verbs: {verbs}, type_id: {type_id} }}"
    )
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn texts(value: &Value) -> Vec<String> {
    array(value).iter().map(|item| text(item).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::messages::Package;
    use super::super::proto::Proto;
    use super::super::structs;
    use super::super::types::Types;
    use super::*;

    #[test]
    fn subresources_are_rendered_with_their_resource() {
        let kind = json!([{"group": "", "version": "v1", "kind": "Pod"}]);
        let schemas = json!({"a.Pod": {"x-kubernetes-group-version-kind": kind}});
        let types = Types::read(&[json!({"components": {"schemas": schemas}})]);
        let proto = Proto::parse("package a;\nmessage Pod {\n}\n").unwrap();
        let structs = structs::parse("type Pod struct {\n\tTypeMeta `json:\",inline\"`\n}\n");
        let packages = [Package { proto, structs }];
        let messages = Messages::read(&packages, &types);
        let verbs = json!(["get"]);
        let resources = json!([
            {"name": "pods", "kind": "Pod", "singularName": "pod", "namespaced": true, "verbs": verbs, "shortNames": ["po"]},
            {"name": "pods/eviction", "kind": "Eviction", "group": "policy", "version": "v1", "verbs": verbs},
        ]);
        let list = json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": resources});
        let groups =
            json!({"kind": "APIGroupList", "groups": [{"name": "apps", "versions": [{"version": "v1"}]}]});
        let text = render(&[list.clone(), groups], &messages, "1.36").unwrap();
        assert!(text.contains(r#"short_names: &["po"],"#), "{text}");
        assert!(text.contains("type_id: Some(of(0)), subresources: &["), "{text}");
        assert!(text.contains(r#"kind: "Eviction", verbs: &["get"], type_id: None }"#), "{text}");
        assert!(text.contains(r#"Group { name: "apps", versions: &["v1"] }"#), "{text}");
        assert!(render(&[list], &messages, "1.36").unwrap_err().contains("groups"));
    }
}
