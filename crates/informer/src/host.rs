//! The name of this host, for identities that people read. What makes them differ is not here: two processes of one host have the same.

/// Where the kernel says it, and where it is set.
const FILES: [&str; 2] = ["/proc/sys/kernel/hostname", "/etc/hostname"];

/// `HOSTNAME`, which is the pod's name in a cluster but which not every shell hands on; else the kernel's word; else `informer`.
pub(crate) fn host() -> String {
    named(std::env::var("HOSTNAME").ok(), FILES.iter().map(|file| std::fs::read_to_string(file).ok()))
}

/// The first that says something. An identity is one word.
fn named(variable: Option<String>, files: impl Iterator<Item = Option<String>>) -> String {
    let said = std::iter::once(variable).chain(files).flatten();
    let mut words = said.filter_map(|text| text.split_whitespace().next().map(str::to_owned));
    words.next().unwrap_or_else(|| "informer".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seen in review: without `HOSTNAME`, as under systemd and in most terminals, every process said that it was `informer`.
    #[test]
    fn the_first_that_says_something_has_it() {
        let text = |text: &str| Some(text.to_owned());
        let said = |variable, files: [Option<String>; 2]| named(variable, files.into_iter());
        assert_eq!(said(text("pod-1"), [text("host-1\n"), None]), "pod-1");
        assert_eq!(said(None, [text("host-1\n"), text("host-2\n")]), "host-1");
        assert_eq!(said(text(""), [text("\n"), text("host-2\n")]), "host-2");
        assert_eq!(said(None, [None, None]), "informer");
    }
}
