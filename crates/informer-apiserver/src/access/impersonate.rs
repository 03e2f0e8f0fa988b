//! Impersonation: a request on behalf of another user, as its headers specify.
//!
//! There are several modes, tried one after the other. In the constrained modes, permissions are for certain
//! requests (`impersonate-on:…`); in the legacy mode (`impersonate`), they are for all requests. If no mode
//! permits the impersonation, the error is that of the first mode that applies to the impersonated user.
//! kube-apiserver has one more mode, in which the service account of a node impersonates that node. It is not
//! implemented.

use http::HeaderMap;
use informer_objects::status::Status;
use informer_objects::text::quoted;

use super::forbidden::{authorize, forbidden};
use super::rules::Rights;
use super::{ANONYMOUS, AUTHENTICATED, Attributes, UNAUTHENTICATED};
use crate::request::decode;
use crate::user::{MASTERS, User};

const AUTHENTICATION: &str = "authentication.k8s.io";
/// Prefix of the headers with extra fields of the user.
const EXTRA_PREFIX: &str = "impersonate-extra-";

/// Returns the user on whose behalf a request is made: the sender, or the impersonated user.
pub(crate) fn impersonate(
    rights: &Rights,
    user: User,
    attributes: &Attributes,
    headers: &HeaderMap,
) -> Result<User, Status> {
    let Some(impersonated) = impersonated_user(headers)? else { return Ok(user) };
    let mut first_error = None;
    for mode in [Mode::Node, Mode::ServiceAccount, Mode::UserInfo, Mode::Legacy] {
        if !mode.applies_to(&impersonated) {
            continue;
        }
        match mode.check(rights, &user, attributes, &impersonated) {
            Ok(()) => return Ok(mode.with_implied_groups(impersonated)),
            Err(status) => first_error = first_error.or(Some(status)),
        }
    }
    Err(first_error.unwrap_or_else(|| Status::internal("all impersonation modes failed")))
}

/// A mode of impersonation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Node,
    ServiceAccount,
    UserInfo,
    Legacy,
}

impl Mode {
    /// Returns the name of the mode in verbs; the legacy mode has none.
    fn name(self) -> Option<&'static str> {
        match self {
            Mode::Node => Some("arbitrary-node"),
            Mode::ServiceAccount => Some("serviceaccount"),
            Mode::UserInfo => Some("user-info"),
            Mode::Legacy => None,
        }
    }

    fn applies_to(self, impersonated: &User) -> bool {
        let only_name =
            impersonated.uid.is_empty() && impersonated.groups.is_empty() && impersonated.extra.is_empty();
        let (node, account) =
            (node(&impersonated.name).is_some(), service_account(&impersonated.name).is_some());
        match self {
            Mode::Node => only_name && node,
            Mode::ServiceAccount => only_name && account,
            Mode::UserInfo => !node && !account,
            Mode::Legacy => true,
        }
    }

    /// Returns an error unless `user` has the permissions for every property of the impersonated user.
    fn check(
        self,
        rights: &Rights,
        user: &User,
        attributes: &Attributes,
        impersonated: &User,
    ) -> Result<(), Status> {
        let (verb, group) = match self.name() {
            Some(mode) => {
                let verb = format!("impersonate-on:{mode}:{}", attributes.verb);
                authorize(rights, user, &Attributes { verb, ..attributes.clone() })?;
                (format!("impersonate:{mode}"), AUTHENTICATION)
            }
            None => ("impersonate".to_owned(), ""),
        };
        // The attributes of the permission to impersonate one property of a user.
        let permission = |group: &str, resource: &str, name: &str| Attributes {
            verb: verb.clone(),
            group: group.to_owned(),
            resource: resource.to_owned(),
            name: name.to_owned(),
            ..Attributes::default()
        };
        authorize(rights, user, &self.name_permission(impersonated, &permission, group))?;
        if !impersonated.uid.is_empty() {
            authorize(rights, user, &permission(AUTHENTICATION, "uids", &impersonated.uid))?;
        }
        if self != Mode::Legacy {
            let refuse = |name: &str, why: &str| forbidden(user, &permission(group, "groups", name), why);
            if impersonated.is_in("") {
                return Err(refuse("", "impersonating the empty string group is not allowed"));
            }
            if impersonated.is_in(MASTERS) {
                return Err(refuse(MASTERS, "impersonating the system:masters group is not allowed"));
            }
        }
        for name in &impersonated.groups {
            authorize(rights, user, &permission(group, "groups", name))?;
        }
        for (key, value) in
            impersonated.extra.iter().flat_map(|(key, all)| all.iter().map(move |one| (key, one)))
        {
            let extra = permission(AUTHENTICATION, "userextras", value);
            authorize(rights, user, &Attributes { subresource: key.clone(), ..extra })?;
        }
        Ok(())
    }

    /// Returns the attributes of the permission to impersonate the user's name.
    fn name_permission(
        self,
        impersonated: &User,
        permission: &impl Fn(&str, &str, &str) -> Attributes,
        group: &str,
    ) -> Attributes {
        if let Some((namespace, name)) = service_account(&impersonated.name) {
            let namespace = namespace.to_owned();
            return Attributes { namespace, ..permission(group, "serviceaccounts", name) };
        }
        match node(&impersonated.name).filter(|_| self == Mode::Node) {
            Some(name) => permission(group, "nodes", name),
            None => permission(group, "users", &impersonated.name),
        }
    }

    /// Adds the groups that kube-apiserver adds because of the user's name.
    fn with_implied_groups(self, mut impersonated: User) -> User {
        if self == Mode::Node {
            impersonated.groups = vec!["system:nodes".to_owned()];
        }
        let namespace = service_account(&impersonated.name).map(|(namespace, _)| namespace.to_owned());
        if let Some(namespace) = namespace.filter(|_| impersonated.groups.is_empty()) {
            let all = "system:serviceaccounts";
            impersonated.groups = vec![all.to_owned(), format!("{all}:{namespace}")];
        }
        if impersonated.name == ANONYMOUS {
            impersonated.join(UNAUTHENTICATED);
        } else if !impersonated.is_in(UNAUTHENTICATED) {
            impersonated.join(AUTHENTICATED);
        }
        impersonated
    }
}

/// Returns the impersonated user in the headers, or `None` if there are no such headers.
fn impersonated_user(headers: &HeaderMap) -> Result<Option<User>, Status> {
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let one = |name: &str| headers.get(name).map(text).unwrap_or_default();
    let mut impersonated = User::new(one("impersonate-user")).uid(one("impersonate-uid"));
    impersonated.groups = headers.get_all("impersonate-group").iter().map(text).collect();
    for (name, value) in headers {
        if let Some(key) = name.as_str().strip_prefix(EXTRA_PREFIX) {
            impersonated = impersonated.extra(decode(key), text(value));
        }
    }
    if !impersonated.name.is_empty() {
        return Ok(Some(impersonated));
    }
    if impersonated == User::default() {
        return Ok(None);
    }
    Err(Status::bad_request(format!("requested {} without impersonating a user name", in_go(&impersonated))))
}

/// Formats a user as Go's `%#v`.
fn in_go(user: &User) -> String {
    let list = |texts: &[String]| texts.iter().map(|text| quoted(text)).collect::<Vec<_>>().join(", ");
    let groups = match user.groups.as_slice() {
        [] => "[]string(nil)".to_owned(),
        groups => format!("[]string{{{}}}", list(groups)),
    };
    let extra: Vec<String> = user
        .extra
        .iter()
        .map(|(key, values)| format!("{}:[]string{{{}}}", quoted(key), list(values)))
        .collect();
    let extra = match extra.as_slice() {
        [] => "map[string][]string(nil)".to_owned(),
        extra => format!("map[string][]string{{{}}}", extra.join(", ")),
    };
    let (name, uid) = (quoted(&user.name), quoted(&user.uid));
    format!("&user.DefaultInfo{{Name:{name}, UID:{uid}, Groups:{groups}, Extra:{extra}}}")
}

/// Returns namespace and name of a service account.
fn service_account(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    (is_dns(namespace) && is_dns(name)).then_some((namespace, name))
}

fn node(user: &str) -> Option<&str> {
    user.strip_prefix("system:node:").filter(|name| is_dns(name))
}

fn is_dns(name: &str) -> bool {
    let inside = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let label = |label: &str| {
        label.bytes().all(|byte| inside(byte) || byte == b'-')
            && label.bytes().next().is_some_and(inside)
            && label.bytes().last().is_some_and(inside)
    };
    name.len() <= 253 && name.split('.').all(label)
}
