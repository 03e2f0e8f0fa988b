//! Names of API versions: their group, and the order in which the server prefers them.
//!
//! Works on the text alone. Nothing here knows which groups and versions exist.

/// Splits an `apiVersion`: `apps/v1` is group `apps` and version `v1`; `v1` belongs to the core group.
pub fn split_api_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

/// Returns a sort key that is greater for preferred versions: stable over beta over alpha, newer over older.
/// All other names have the lowest key.
pub fn priority(version: &str) -> (u8, u32, u32) {
    let digits = |text: &str| -> Option<(u32, usize)> {
        let length = text.bytes().take_while(u8::is_ascii_digit).count();
        Some((text[..length].parse().ok()?, length))
    };
    let parsed = version.strip_prefix('v').and_then(|rest| {
        let (major, length) = digits(rest)?;
        let tail = &rest[length..];
        if tail.is_empty() {
            return Some((3, major, 0));
        }
        let (stage, minor) = match (tail.strip_prefix("beta"), tail.strip_prefix("alpha")) {
            (Some(minor), _) => (2, minor),
            (_, Some(minor)) => (1, minor),
            _ => return None,
        };
        Some((stage, major, minor.parse().ok()?))
    });
    parsed.unwrap_or((0, 0, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stable_versions_come_first() {
        let mut versions = ["v1alpha1", "v2", "v1beta2", "v10", "strange", "v1"];
        versions.sort_by_key(|version| std::cmp::Reverse(priority(version)));
        assert_eq!(versions, ["v10", "v2", "v1", "v1beta2", "v1alpha1", "strange"]);
    }
}
