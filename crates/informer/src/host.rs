//! The name of this host, for identities that people read.
//!
//! Two processes of one host have the same name; callers append a suffix to make identities unique.

/// Files that contain the host name: the kernel's and the configured one.
const HOST_NAME_FILES: [&str; 2] = ["/proc/sys/kernel/hostname", "/etc/hostname"];

/// Returns the host name: the variable `HOSTNAME` (in a cluster the name of the pod, but often not exported
/// by shells), else the kernel's host name, else `/etc/hostname`, else `informer`.
pub(crate) fn host() -> String {
    first_name(
        std::env::var("HOSTNAME").ok(),
        HOST_NAME_FILES.iter().map(|file| std::fs::read_to_string(file).ok()),
    )
}

/// Returns the first word of the first candidate that is not empty, since an identity is one word.
fn first_name(variable: Option<String>, files: impl Iterator<Item = Option<String>>) -> String {
    let candidates = std::iter::once(variable).chain(files).flatten();
    let mut words = candidates.filter_map(|text| text.split_whitespace().next().map(str::to_owned));
    words.next().unwrap_or_else(|| "informer".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: without `HOSTNAME`, as under systemd and in most terminals, the host name of every process
    /// was `informer`.
    #[test]
    fn first_nonempty_candidate_is_the_host_name() {
        let text = |text: &str| Some(text.to_owned());
        let name = |variable, files: [Option<String>; 2]| first_name(variable, files.into_iter());
        assert_eq!(name(text("pod-1"), [text("host-1\n"), None]), "pod-1");
        assert_eq!(name(None, [text("host-1\n"), text("host-2\n")]), "host-1");
        assert_eq!(name(text(""), [text("\n"), text("host-2\n")]), "host-2");
        assert_eq!(name(None, [None, None]), "informer");
    }
}
