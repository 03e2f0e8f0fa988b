//! Impersonation: a request on behalf of another user, as its headers specify.
//!
//! There are several modes, tried one after the other: constrained ones permit impersonation for certain
//! requests (`impersonate-on:…`), the legacy one (`impersonate`) for all. If no mode permits it, the error is
//! that of the first mode that could apply. The mode in which the service account of a node impersonates that
//! node is not implemented.

use http::HeaderMap;
use informer_objects::status::Status;
use informer_objects::text::quoted;

use super::forbidden::{authorize, forbidden};
use super::rules::Rights;
use super::{ANONYMOUS, AUTHENTICATED, Attributes, UNAUTHENTICATED};
use crate::request::decode;
use crate::user::{MASTERS, User};

const AUTHENTICATION: &str = "authentication.k8s.io";
const EXTRA: &str = "impersonate-extra-";

/// Returns the user on whose behalf a request is made: the sender, or the impersonated user.
pub(crate) fn impersonate(
    rights: &Rights,
    user: User,
    attributes: &Attributes,
    headers: &HeaderMap,
) -> Result<User, Status> {
    let Some(other) = impersonated_user(headers)? else { return Ok(user) };
    let mut first = None;
    for mode in [Mode::Node, Mode::ServiceAccount, Mode::UserInfo, Mode::Legacy] {
        if !mode.fits(&other) {
            continue;
        }
        match mode.check(rights, &user, attributes, &other) {
            Ok(()) => return Ok(mode.finish(other)),
            Err(refusal) => first = first.or(Some(refusal)),
        }
    }
    Err(first.unwrap_or_else(|| Status::internal("all impersonation modes failed")))
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
    /// Returns its name in verbs; the legacy mode has none.
    fn name(self) -> Option<&'static str> {
        match self {
            Mode::Node => Some("arbitrary-node"),
            Mode::ServiceAccount => Some("serviceaccount"),
            Mode::UserInfo => Some("user-info"),
            Mode::Legacy => None,
        }
    }

    fn fits(self, other: &User) -> bool {
        let only_name = other.uid.is_empty() && other.groups.is_empty() && other.extra.is_empty();
        let (node, account) = (node(&other.name).is_some(), service_account(&other.name).is_some());
        match self {
            Mode::Node => only_name && node,
            Mode::ServiceAccount => only_name && account,
            Mode::UserInfo => !node && !account,
            Mode::Legacy => true,
        }
    }

    fn check(
        self,
        rights: &Rights,
        user: &User,
        attributes: &Attributes,
        other: &User,
    ) -> Result<(), Status> {
        let (verb, group) = match self.name() {
            Some(mode) => {
                let verb = format!("impersonate-on:{mode}:{}", attributes.verb);
                authorize(rights, user, &Attributes { verb, ..attributes.clone() })?;
                (format!("impersonate:{mode}"), AUTHENTICATION)
            }
            None => ("impersonate".to_owned(), ""),
        };
        let about = |group: &str, resource: &str, name: &str| Attributes {
            verb: verb.clone(),
            group: group.to_owned(),
            resource: resource.to_owned(),
            name: name.to_owned(),
            ..Attributes::default()
        };
        authorize(rights, user, &self.about_name(other, &about, group))?;
        if !other.uid.is_empty() {
            authorize(rights, user, &about(AUTHENTICATION, "uids", &other.uid))?;
        }
        if self != Mode::Legacy {
            let refuse = |name: &str, why: &str| forbidden(user, &about(group, "groups", name), why);
            if other.is_in("") {
                return Err(refuse("", "impersonating the empty string group is not allowed"));
            }
            if other.is_in(MASTERS) {
                return Err(refuse(MASTERS, "impersonating the system:masters group is not allowed"));
            }
        }
        for name in &other.groups {
            authorize(rights, user, &about(group, "groups", name))?;
        }
        for (key, value) in other.extra.iter().flat_map(|(key, all)| all.iter().map(move |one| (key, one))) {
            let extra = about(AUTHENTICATION, "userextras", value);
            authorize(rights, user, &Attributes { subresource: key.clone(), ..extra })?;
        }
        Ok(())
    }

    fn about_name(
        self,
        other: &User,
        about: &impl Fn(&str, &str, &str) -> Attributes,
        group: &str,
    ) -> Attributes {
        if let Some((namespace, name)) = service_account(&other.name) {
            let namespace = namespace.to_owned();
            return Attributes { namespace, ..about(group, "serviceaccounts", name) };
        }
        match node(&other.name).filter(|_| self == Mode::Node) {
            Some(name) => about(group, "nodes", name),
            None => about(group, "users", &other.name),
        }
    }

    /// Adds the groups that belong to a user name.
    fn finish(self, mut other: User) -> User {
        if self == Mode::Node {
            other.groups = vec!["system:nodes".to_owned()];
        }
        let namespace = service_account(&other.name).map(|(namespace, _)| namespace.to_owned());
        if let Some(namespace) = namespace.filter(|_| other.groups.is_empty()) {
            let all = "system:serviceaccounts";
            other.groups = vec![all.to_owned(), format!("{all}:{namespace}")];
        }
        if other.name == ANONYMOUS {
            other.join(UNAUTHENTICATED);
        } else if !other.is_in(UNAUTHENTICATED) {
            other.join(AUTHENTICATED);
        }
        other
    }
}

/// Returns the user in the headers, or `None` if there is none.
fn impersonated_user(headers: &HeaderMap) -> Result<Option<User>, Status> {
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let one = |name: &str| headers.get(name).map(text).unwrap_or_default();
    let mut other = User::new(one("impersonate-user")).uid(one("impersonate-uid"));
    other.groups = headers.get_all("impersonate-group").iter().map(text).collect();
    for (name, value) in headers {
        if let Some(key) = name.as_str().strip_prefix(EXTRA) {
            other = other.extra(decode(key), text(value));
        }
    }
    if !other.name.is_empty() {
        return Ok(Some(other));
    }
    if other == User::default() {
        return Ok(None);
    }
    Err(Status::bad_request(format!("requested {} without impersonating a user name", in_go(&other))))
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
