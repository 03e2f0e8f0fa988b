//! Renders the groups and resources that Kubernetes serves, from its discovery documents.
//!
//! Resources are sorted by group, version and plural; groups have the server's order of preference.
//! Subresources are part of the row of their resource.

use std::collections::BTreeMap;

use serde_json::Value;

use super::GENERATED;
use super::layout::Expr;
use super::types::Types;

pub(super) fn render(documents: &[Value], types: &Types, version: &str) -> Result<String, String> {
    let mut rows = BTreeMap::new();
    for document in documents.iter().filter(|document| document["kind"] == "APIResourceList") {
        add_rows(document, types, &mut rows)?;
    }
    let groups = documents.iter().find(|document| document["kind"] == "APIGroupList");
    let groups = groups_of(groups.ok_or("no document with the list of groups")?);
    Ok(format!(
        "{GENERATED}\n\
         //! The groups and resources that Kubernetes {version} serves.\n\
         \n\
         use crate::fields::TypeId;\n\
         use crate::shapes::{{Group, Resource, Subresource}};\n\
         \n\
         /// Every group of Kubernetes {version}: the core group first, then the others in the server's order of preference.\n\
         pub static GROUPS: &[Group] = {};\n\
         \n\
         /// Every resource of Kubernetes {version}, including versions that are disabled by default. Sorted by group,\n\
         /// version and plural.\n\
         pub static RESOURCES: &[Resource] = {};\n",
        groups.render(0, "pub static GROUPS: &[Group] = ".len(), 1),
        Expr::Slice(rows.into_values().collect()).render(0, 0, 1)
    ))
}

fn groups_of(document: &Value) -> Expr {
    let row = |name: &str, versions: &[String]| {
        Expr::Struct("Group", vec![("name", Expr::text(name)), ("versions", Expr::texts(versions))])
    };
    let mut rows = vec![row("", &["v1".to_owned()])];
    for group in array(&document["groups"]) {
        let versions: Vec<String> =
            array(&group["versions"]).iter().map(|version| text(&version["version"]).to_owned()).collect();
        rows.push(row(text(&group["name"]), &versions));
    }
    Expr::Slice(rows)
}

type Rows = BTreeMap<[String; 3], Expr>;

fn add_rows(document: &Value, types: &Types, rows: &mut Rows) -> Result<(), String> {
    let group_version = text(&document["groupVersion"]);
    let (group, version) = group_version.split_once('/').unwrap_or(("", group_version));
    let entries = array(&document["resources"]);
    for entry in entries.iter().filter(|entry| !text(&entry["name"]).contains('/')) {
        let plural = text(&entry["name"]);
        let kind = text(&entry["kind"]);
        let type_id = types.of_kind(group, version, kind);
        let type_id = type_id.ok_or_else(|| format!("{group_version}: the type of {plural} is unknown"))?;
        let subresources = entries.iter().filter_map(|entry| {
            let (resource, name) = text(&entry["name"]).split_once('/')?;
            (resource == plural).then(|| subresource([group, version], name, entry, types))
        });
        let row = Expr::Struct(
            "Resource",
            vec![
                ("group", Expr::text(group)),
                ("version", Expr::text(version)),
                ("kind", Expr::text(kind)),
                ("plural", Expr::text(plural)),
                ("singular", Expr::text(text(&entry["singularName"]))),
                ("namespaced", Expr::word((entry["namespaced"] == true).to_string())),
                ("short_names", Expr::texts(&texts(&entry["shortNames"]))),
                ("categories", Expr::texts(&texts(&entry["categories"]))),
                ("verbs", Expr::texts(&texts(&entry["verbs"]))),
                ("storage_hash", Expr::text(text(&entry["storageVersionHash"]))),
                ("type_id", type_id),
                ("subresources", Expr::Slice(subresources.collect())),
            ],
        );
        rows.insert([group, version, plural].map(str::to_owned), row);
    }
    Ok(())
}

/// Renders a subresource. Its kind may belong to another group or version than its resource.
fn subresource(resource: [&str; 2], name: &str, entry: &Value, types: &Types) -> Expr {
    let group = entry["group"].as_str().unwrap_or(resource[0]);
    let version = entry["version"].as_str().unwrap_or(resource[1]);
    let kind = text(&entry["kind"]);
    Expr::Struct(
        "Subresource",
        vec![
            ("name", Expr::text(name)),
            ("group", Expr::text(group)),
            ("version", Expr::text(version)),
            ("kind", Expr::text(kind)),
            ("verbs", Expr::texts(&texts(&entry["verbs"]))),
            ("type_id", types.of_kind(group, version, kind).unwrap_or_else(|| Expr::word("None"))),
        ],
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

    use super::*;

    #[test]
    fn subresources_are_rendered_with_their_resource() {
        let kind = json!([{"group": "", "version": "v1", "kind": "Pod"}]);
        let schemas = json!({"a.Pod": {"x-kubernetes-group-version-kind": kind}});
        let types = Types::read(&[json!({"components": {"schemas": schemas}})]);
        let verbs = json!(["get"]);
        let resources = json!([
            {"name": "pods", "kind": "Pod", "singularName": "pod", "namespaced": true, "verbs": verbs, "shortNames": ["po"]},
            {"name": "pods/eviction", "kind": "Eviction", "group": "policy", "version": "v1", "verbs": verbs},
        ]);
        let list = json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": resources});
        let groups =
            json!({"kind": "APIGroupList", "groups": [{"name": "apps", "versions": [{"version": "v1"}]}]});
        let text = render(&[list.clone(), groups], &types, "1.36").unwrap();
        assert!(text.contains(r#"short_names: &["po"],"#), "{text}");
        assert!(text.contains("type_id: Some(TypeId(0)),"), "{text}");
        assert!(
            text.contains("kind: \"Eviction\",\n        verbs: &[\"get\"],\n        type_id: None,"),
            "{text}"
        );
        assert!(text.contains(r#"Group { name: "apps", versions: &["v1"] }"#), "{text}");
        assert!(render(&[list], &types, "1.36").unwrap_err().contains("groups"));
    }
}
