//! The identity of a saved cache: everything that decides which objects it contains, and in which form.
//!
//! The name of the file depends on the cluster, the resource and the selection, so that the informers of a
//! program have different files. The file contains the whole identity, and is used only by an informer with the
//! same one.

use std::fmt::Write as _;

/// The identity of a saved cache, as lines of the form `name value`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    /// The name of the file.
    pub(super) file_name: String,
    text: String,
}

impl Identity {
    /// Creates an identity. The settings in `selection` decide the name of the file, together with the cluster
    /// and the resource; those in `content` do not.
    pub(crate) fn new(
        cluster: &str,
        resource: &str,
        selection: &[(&'static str, String)],
        content: &[(&'static str, String)],
    ) -> Self {
        let mut text = String::new();
        add_line(&mut text, "cluster", cluster);
        add_line(&mut text, "resource", resource);
        for (name, value) in selection {
            add_line(&mut text, name, value);
        }
        let hash = fnv1a(text.as_bytes());
        for (name, value) in content {
            add_line(&mut text, name, value);
        }
        let allowed = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
        let resource: String = resource.chars().map(allowed).collect();
        Self { file_name: format!("{resource}-{hash:016x}.redb"), text }
    }

    /// Returns the name of a file that is not used, because it is damaged or of other options.
    pub(super) fn discarded_name(&self) -> String {
        format!("{}.discarded", self.file_name)
    }

    /// Returns the name of a file that is to replace the file.
    pub(super) fn replacement_name(&self) -> String {
        format!("{}.new", self.file_name)
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the name of the first setting that differs from that of a file; `None` if all are equal.
    pub(super) fn difference(&self, saved: &str) -> Option<String> {
        if saved == self.text {
            return None;
        }
        let differing = self.text.lines().find(|line| !saved.lines().any(|other| other == *line));
        let removed = || saved.lines().find(|line| !self.text.lines().any(|other| other == *line));
        let line = differing.or_else(removed).unwrap_or("order");
        Some(line.split(' ').next().unwrap_or(line).replace('-', " "))
    }
}

fn add_line(text: &mut String, name: &str, value: &str) {
    // A value may contain line breaks, if a user writes such a name or path.
    let _ = writeln!(text, "{name} {}", value.escape_debug());
}

/// FNV-1a with 64 bits: a hash that never changes, for names of files.
pub(crate) fn fnv1a(bytes: &[u8]) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    bytes.iter().fold(OFFSET, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selection_decides_the_file_and_content_the_difference() {
        let identity = |labels: &str, transform: &str| {
            let selection = [("label-selector", labels.to_owned())];
            Identity::new("c", "pods", &selection, &[("transform", transform.to_owned())])
        };
        let one = identity("app=web", "v1");
        assert_ne!(one.file_name, identity("app=db", "v1").file_name);
        let other = identity("app=web", "v2");
        assert_eq!(one.file_name, other.file_name);
        assert_eq!(one.difference(other.text()).as_deref(), Some("transform"));
        assert_eq!(one.difference(one.text()), None);
        assert_eq!(one.difference("").as_deref(), Some("cluster"));
        let hash = one.file_name.strip_prefix("pods-").and_then(|rest| rest.strip_suffix(".redb"));
        assert_eq!(hash.map(str::len), Some(16), "{}", one.file_name);
    }

    #[test]
    fn fnv1a_matches_the_published_values() {
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }
}
