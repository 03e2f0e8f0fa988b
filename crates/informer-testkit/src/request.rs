//! The operation of a request, read from its method and path.

use std::fmt;

/// The target and the verb of a request.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Operation {
    pub(crate) verb: &'static str,
    /// Empty for the core group.
    pub(crate) group: String,
    pub(crate) version: String,
    /// Empty for a request that is not for a resource, for example discovery.
    pub(crate) plural: String,
    pub(crate) namespace: String,
    /// Empty for a request for a collection.
    pub(crate) name: String,
    pub(crate) subresource: String,
    /// Whether the request continues at a version that may be too old: a watch, a page of a list, or a list at an exact
    /// version.
    pub(crate) may_expire: bool,
}

impl Operation {
    pub(crate) fn parse(head: &http::request::Parts) -> Self {
        let (path, query) = (head.uri.path(), head.uri.query().unwrap_or_default());
        let mut parts = path.trim_matches('/').split('/');
        let group = match parts.next() {
            Some("api") => Some(String::new()),
            Some("apis") => parts.next().map(str::to_owned),
            _ => None,
        };
        let version = parts.next().unwrap_or_default().to_owned();
        let mut rest: Vec<&str> = parts.collect();
        let mut operation = Operation {
            verb: "get",
            group: String::new(),
            version,
            plural: String::new(),
            namespace: String::new(),
            name: String::new(),
            subresource: String::new(),
            may_expire: false,
        };
        let Some(group) = group.filter(|_| !rest.is_empty()) else { return operation };
        operation.group = group;
        // `namespaces/NAME` and its subresources are requests for the namespace itself.
        let is_in_namespace = rest.len() > 2
            && rest.first() == Some(&"namespaces")
            && !matches!(rest.get(2), Some(&"status" | &"finalize"));
        if is_in_namespace {
            rest.get(1).copied().unwrap_or_default().clone_into(&mut operation.namespace);
            rest.drain(..2);
        }
        let part = |index: usize| rest.get(index).copied().unwrap_or_default().to_owned();
        (operation.plural, operation.name, operation.subresource) = (part(0), part(1), part(2));
        let is_watch = query.split('&').any(|pair| matches!(pair, "watch=true" | "watch=1"));
        operation.verb = match head.method.as_str() {
            "POST" => "create",
            "PUT" => "update",
            "PATCH" => "patch",
            "DELETE" if operation.name.is_empty() => "deletecollection",
            "DELETE" => "delete",
            _ if is_watch => "watch",
            _ if operation.name.is_empty() => "list",
            _ => "get",
        };
        operation.may_expire = operation.may_expire(query);
        operation
    }

    fn may_expire(&self, query: &str) -> bool {
        let parameter = |name: &str| {
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs.find(|(key, _)| *key == name).map_or("", |(_, value)| value)
        };
        let has_version = !matches!(parameter("resourceVersion"), "" | "0");
        match self.verb {
            "watch" => has_version && parameter("sendInitialEvents") != "true",
            "list" => {
                let is_exact = match parameter("resourceVersionMatch") {
                    "" => !matches!(parameter("limit"), "" | "0"),
                    rule => rule == "Exact",
                };
                !parameter("continue").is_empty() || (has_version && is_exact)
            }
            _ => false,
        }
    }

    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    pub(crate) fn is_watch(&self) -> bool {
        self.verb == "watch"
    }

    /// Whether the request changes objects. Reviews and tokens are created without changing any.
    pub(crate) fn is_write(&self) -> bool {
        !matches!(self.verb, "get" | "list" | "watch")
            && !self.group.ends_with("authorization.k8s.io")
            && self.subresource != "token"
    }

    /// Whether the request is a write that matters for the state of the cluster. Writes of leases go on although
    /// nothing happens, and events only describe what happened.
    pub(crate) fn is_foreground_write(&self) -> bool {
        self.is_write() && !is_background(&self.group, &self.plural)
    }

    /// Returns the request with the name of the object that it creates, which is in its body.
    pub(crate) fn describe(&self, body: &[u8]) -> String {
        if self.verb != "create" || !self.name.is_empty() {
            return self.to_string();
        }
        let object: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
        let text = |field: &str| object["metadata"][field].as_str();
        match (text("name"), text("generateName")) {
            (Some(name), _) => format!("{self}: {name}"),
            (None, Some(prefix)) => format!("{self}: {prefix}…"),
            (None, None) => self.to_string(),
        }
    }

    /// Returns the request without the names of objects, for counting.
    pub(crate) fn label(&self) -> String {
        match (self.plural.is_empty(), self.subresource.is_empty()) {
            (true, _) => "discovery".to_owned(),
            (false, true) => format!("{} {}", self.verb, self.plural),
            (false, false) => format!("{} {}/{}", self.verb, self.plural, self.subresource),
        }
    }
}

/// Whether objects of a resource change although nothing happens, or only describe what happened.
pub(crate) fn is_background(group: &str, plural: &str) -> bool {
    matches!((group, plural), ("coordination.k8s.io", "leases") | ("" | "events.k8s.io", "events"))
}

impl fmt::Display for Operation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.label())?;
        match (self.namespace.is_empty(), self.name.is_empty()) {
            (true, true) => Ok(()),
            (true, false) => write!(out, " {}", self.name),
            (false, true) => write!(out, " in {}", self.namespace),
            (false, false) => write!(out, " {}/{}", self.namespace, self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_read_from_method_and_path() {
        for (method, path, expected) in [
            ("GET", "/api/v1/pods?watch=true&resourceVersion=1", "watch pods"),
            ("GET", "/api/v1/namespaces/a/pods", "list pods in a"),
            ("GET", "/api/v1/namespaces/a", "get namespaces a"),
            ("PUT", "/api/v1/namespaces/a/finalize", "update namespaces/finalize a"),
            ("PATCH", "/apis/apps/v1/namespaces/a/deployments/b/status", "patch deployments/status a/b"),
            ("POST", "/apis/example.com/v1/widgets", "create widgets"),
            ("DELETE", "/api/v1/nodes/n", "delete nodes n"),
            ("DELETE", "/api/v1/namespaces/a/pods", "deletecollection pods in a"),
            ("GET", "/apis/apps/v1", "discovery"),
            ("GET", "/version", "discovery"),
        ] {
            let request = http::Request::builder().method(method).uri(path).body(()).unwrap();
            assert_eq!(Operation::parse(&request.into_parts().0).to_string(), expected);
        }
    }

    #[test]
    fn only_requests_that_continue_at_a_version_may_expire() {
        for (query, expected) in [
            ("", false),
            ("resourceVersion=0", false),
            ("resourceVersion=7", false),
            ("resourceVersion=7&resourceVersionMatch=NotOlderThan&limit=5", false),
            ("resourceVersion=7&limit=5", true),
            ("resourceVersion=7&resourceVersionMatch=Exact", true),
            ("continue=abc", true),
            ("watch=true", false),
            ("watch=true&resourceVersion=7", true),
            ("watch=true&resourceVersion=7&sendInitialEvents=true", false),
        ] {
            let request = http::Request::get(format!("/api/v1/pods?{query}")).body(()).unwrap();
            assert_eq!(Operation::parse(&request.into_parts().0).may_expire, expected, "{query}");
        }
    }
}
