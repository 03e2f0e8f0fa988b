//! Compares two responses, ignoring what differs between any two servers.
//!
//! Resource versions, uids, generated names, tokens and addresses of the recording are mapped to ours in order of
//! appearance, and each mapping must stay consistent. Versions must also keep their order. Timestamps set by the
//! server, ages, and the format of hashes and addresses match if both sides have one.

use std::collections::BTreeMap;

use serde_json::Value;

/// Timestamps that the server sets.
const TIMES: &[&str] = &["creationTimestamp", "deletionTimestamp", "lastTransitionTime", "lastUpdateTime"];

/// Fields that describe the build of a server.
const BUILD: &[&str] =
    &["gitVersion", "gitCommit", "gitTreeState", "buildDate", "goVersion", "compiler", "platform"];

/// The start of a diff of Go structs. A kube-apiserver appends one when it rejects a change of a pod or volume; the embedded server
/// does not, so it is not compared.
const GO_DIFFERENCE: &str = "\n@@ -";

/// Mapping from recorded values to ours.
#[derive(Debug, Default)]
pub(crate) struct Names {
    versions: BTreeMap<u64, u64>,
    words: BTreeMap<String, String>,
    numbers: BTreeMap<u64, u64>,
}

impl Names {
    /// Returns our version for a recorded one. A version that never appeared maps to the last one before it; one that
    /// is far off stays unchanged.
    pub(crate) fn version(&self, theirs: &str) -> String {
        let Ok(number) = theirs.parse::<u64>() else { return theirs.to_owned() };
        let last = self.versions.last_key_value().map_or(0, |(last, _)| *last);
        if number > last + 1_000 {
            return theirs.to_owned();
        }
        match self.versions.range(..=number).next_back() {
            Some((_, ours)) => ours.to_string(),
            None => theirs.to_owned(),
        }
    }

    pub(crate) fn word(&self, theirs: &str) -> String {
        self.words.get(theirs).cloned().unwrap_or_else(|| theirs.to_owned())
    }

    /// Records that our version corresponds to the recorded one; false if that contradicts earlier pairs.
    pub(crate) fn learn_version(&mut self, theirs: &str, ours: &str) -> bool {
        let (Ok(theirs), Ok(ours)) = (theirs.parse::<u64>(), ours.parse::<u64>()) else {
            return theirs == ours;
        };
        if let Some(known) = self.versions.get(&theirs) {
            return *known == ours;
        }
        let before = self.versions.range(..theirs).next_back().is_none_or(|(_, before)| *before <= ours);
        let after = self.versions.range(theirs..).next().is_none_or(|(_, after)| *after >= ours);
        if before && after {
            self.versions.insert(theirs, ours);
        }
        before && after
    }

    fn learn_word(&mut self, theirs: &str, ours: &str) -> bool {
        let known = self.words.entry(theirs.to_owned()).or_insert_with(|| ours.to_owned());
        known == ours
    }

    /// Whether a whole string may correspond to another: a version, uid, token, address or generated name.
    pub(crate) fn stands_for(&mut self, theirs: &str, ours: &str) -> bool {
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if digits(theirs) && digits(ours) {
            return self.learn_version(theirs, ours);
        }
        if (is_uid(theirs) && is_uid(ours))
            || (is_address(theirs) && is_address(ours))
            || is_made_up(theirs, ours)
        {
            return self.learn_word(theirs, ours);
        }
        let place = |text: &str| text.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        if place(theirs) && place(ours) {
            return true;
        }
        let token = |text: &str| text.starts_with("eyJ");
        (token(theirs) && token(ours)) || self.is_same_prose(theirs, ours, true)
    }

    /// Replaces whole words of a recorded text, and numbers that are versions, by ours.
    pub(crate) fn rename(&self, text: &str) -> String {
        let is_word = |symbol: char| symbol.is_alphanumeric() || matches!(symbol, '-' | '_' | '.');
        let mut out = String::new();
        let mut rest = text;
        while !rest.is_empty() {
            let end = rest.find(|symbol| !is_word(symbol)).unwrap_or(rest.len());
            let (found, tail) = rest.split_at(end);
            let bare = found.trim_end_matches('.');
            let as_version = bare.parse().ok().and_then(|number: u64| self.versions.get(&number));
            match (self.words.get(bare), as_version) {
                (Some(word), _) => out.push_str(word),
                (None, Some(version)) => out.push_str(&version.to_string()),
                (None, None) => out.push_str(bare),
            }
            out.push_str(&found[bare.len()..]);
            let next = tail.chars().next();
            out.extend(next);
            rest = &tail[next.map_or(0, char::len_utf8)..];
        }
        out
    }

    /// Returns the differences between two JSON values.
    pub(crate) fn differences(&mut self, theirs: &Value, ours: &Value) -> Vec<String> {
        let mut found = Vec::new();
        let name =
            |status: &Value| status.pointer("/details/name").and_then(Value::as_str).map(str::to_owned);
        if let (Some(theirs), Some(ours)) = (name(theirs), name(ours))
            && theirs != ours
            && is_made_up(&theirs, &ours)
        {
            self.learn_word(&theirs, &ours);
        }
        let (theirs, ours) = (&without_order(theirs), &without_order(ours));
        self.compare("", theirs, ours, &mut found);
        found
    }

    fn compare(&mut self, path: &str, theirs: &Value, ours: &Value, found: &mut Vec<String>) {
        match (theirs, ours) {
            (Value::Object(a), Value::Object(b)) => {
                let made_up = a.contains_key("generateName") && path.ends_with("/metadata");
                for (key, value) in a {
                    let path = format!("{path}/{key}");
                    match b.get(key).or_else(|| b.get(&self.rename(key))) {
                        Some(other) if made_up && key == "name" => self.made_up(&path, value, other, found),
                        Some(other) => self.compare(&path, value, other, found),
                        None => found.push(format!("  {path}: recorded {}, actual none", short(value))),
                    }
                }
                let known: Vec<String> = a.keys().map(|key| self.rename(key)).collect();
                for (key, value) in b.iter().filter(|(key, _)| !a.contains_key(*key) && !known.contains(*key))
                {
                    found.push(format!("  {path}/{key}: recorded none, actual {}", short(value)));
                }
            }
            (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
                for (place, (theirs, ours)) in a.iter().zip(b).enumerate() {
                    self.compare(&format!("{path}/{place}"), theirs, ours, found);
                }
            }
            (Value::String(a), Value::String(b)) => {
                if !self.is_same_text(path, a, b) {
                    found.push(format!("  {path}:\n    theirs {a:?}\n    ours   {b:?}"));
                }
            }
            (Value::Number(a), Value::Number(b)) if path.ends_with("odePort") => {
                let (a, b) = (a.as_u64().unwrap_or(0), b.as_u64().unwrap_or(0));
                let known = *self.numbers.entry(a).or_insert(b);
                if known != b && a != b {
                    found.push(format!("  {path}: theirs {a}, ours {b}"));
                }
            }
            _ if theirs == ours => {}
            _ => found.push(format!("  {path}:\n    theirs {}\n    ours   {}", short(theirs), short(ours))),
        }
    }

    fn made_up(&mut self, path: &str, theirs: &Value, ours: &Value, found: &mut Vec<String>) {
        let (a, b) = (theirs.as_str().unwrap_or_default(), ours.as_str().unwrap_or_default());
        if !(a == b || is_made_up(a, b) && self.learn_word(a, b)) {
            found.push(format!("  {path}: theirs {a:?}, ours {b:?}"));
        }
    }

    fn is_same_text(&mut self, path: &str, theirs: &str, ours: &str) -> bool {
        let (parent, key) = path.rsplit_once('/').unwrap_or(("", path));
        let theirs = theirs.split_once(GO_DIFFERENCE).map_or(theirs, |(before, _)| before);
        match key {
            "resourceVersion" => self.learn_version(theirs, ours),
            "uid" => theirs == ours || (is_uid(theirs) && is_uid(ours) && self.learn_word(theirs, ours)),
            "continue" | "serverRelativeURL" => self.learn_word(theirs, ours),
            "serverAddress" => true,
            _ if parent.is_empty() && BUILD.contains(&key) => true,
            "time" if path.contains("/managedFields/") => is_time(theirs) && is_time(ours),
            _ if TIMES.contains(&key) => theirs == ours || (is_time(theirs) && is_time(ours)),
            _ if (key == "clusterIP" || parent.ends_with("clusterIPs"))
                && is_address(theirs)
                && is_address(ours) =>
            {
                self.learn_word(theirs, ours)
            }
            _ if parent.ends_with("/cells")
                && ((is_time(theirs) && is_time(ours)) || (is_address(theirs) && is_address(ours))) =>
            {
                true
            }
            _ if parent.ends_with("/cells") => {
                theirs == ours || (is_age(theirs) && is_age(ours)) || self.rename(theirs) == ours
            }
            _ => theirs == ours || self.is_same_prose(theirs, ours, true),
        }
    }

    /// Compares texts that may contain mapped values.
    pub(crate) fn is_same_prose(&self, theirs: &str, ours: &str, whole: bool) -> bool {
        let bare = |text: &str| {
            without_times(&match text.split_once(", current: ") {
                Some((before, after)) => {
                    format!(
                        "{before}, current: {}",
                        after.trim_start_matches(|digit: char| digit.is_ascii_digit())
                    )
                }
                None => text.to_owned(),
            })
        };
        let (theirs, ours) = (bare(&self.rename(theirs)), bare(ours));
        theirs == ours || (!whole && is_beginning(&theirs, &ours)) || is_same_but_ages(&theirs, &ours)
    }

    /// Records mappings from two YAML documents, line by line.
    pub(crate) fn learn_lines(&mut self, theirs: &str, ours: &str) {
        for (theirs, ours) in theirs.lines().zip(ours.lines()) {
            let pair = |key: &str| {
                let value = |line: &str| {
                    line.trim()
                        .trim_start_matches("- ")
                        .strip_prefix(key)
                        .map(|text| text.trim().trim_matches('"').to_owned())
                };
                Some((value(theirs)?, value(ours)?))
            };
            if let Some((theirs, ours)) = pair("resourceVersion:") {
                self.learn_version(&theirs, &ours);
            }
            if let Some((theirs, ours)) = pair("uid:").filter(|(theirs, ours)| is_uid(theirs) && is_uid(ours))
            {
                self.learn_word(&theirs, &ours);
            }
        }
    }
}

/// Whether two texts differ only in lines that are ages, as tables in YAML do.
fn is_same_but_ages(theirs: &str, ours: &str) -> bool {
    let bare = |line: &str| line.trim().trim_start_matches("- ").trim_matches('"').to_owned();
    theirs.lines().count() == ours.lines().count()
        && theirs
            .lines()
            .zip(ours.lines())
            .all(|(theirs, ours)| theirs == ours || (is_age(&bare(theirs)) && is_age(&bare(ours))))
}

/// Whether two names have the same prefix and end in five generated characters.
fn is_made_up(theirs: &str, ours: &str) -> bool {
    let beginning = |text: &str| text.len().checked_sub(5).and_then(|end| text.get(..end).map(str::to_owned));
    theirs.len() == ours.len() && beginning(theirs).is_some() && beginning(theirs) == beginning(ours)
}

/// Sorts lists whose order is undefined: rules, causes of custom kinds, and field managers, which are ordered by
/// time.
fn without_order(value: &Value) -> Value {
    let mut value = value.clone();
    sort_owners(&mut value);
    if let Some(causes) = value.pointer_mut("/details/causes").and_then(Value::as_array_mut)
        && causes.len() > 1
    {
        causes.sort_by_key(Value::to_string);
        if let Some(Value::String(message)) = value.get_mut("message") {
            let mut words: Vec<&str> =
                message.split(", ").map(|word| word.trim_matches(['[', ']'])).collect();
            words.sort_unstable();
            *message = words.join(", ");
        }
    }
    for rules in ["/status/resourceRules", "/status/nonResourceRules"] {
        if let Some(rules) = value.pointer_mut(rules).and_then(Value::as_array_mut) {
            rules.sort_by_key(Value::to_string);
        }
    }
    value
}

fn sort_owners(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields.iter_mut() {
                if let Some(owners) = value.as_array_mut().filter(|_| name == "managedFields") {
                    owners.sort_by_key(|owner| {
                        ["manager", "operation", "subresource", "apiVersion"]
                            .map(|field| owner[field].to_string())
                    });
                }
                sort_owners(value);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(sort_owners),
        _ => {}
    }
}

/// Whether a truncated text is the beginning of another; the last mapped word may be cut in its middle.
fn is_beginning(cut: &str, whole: &str) -> bool {
    let sure = cut.char_indices().rev().nth(40).map_or(0, |(at, _)| at);
    whole.starts_with(&cut[..sure])
}

fn is_uid(text: &str) -> bool {
    text.len() == 36 && text.bytes().filter(|byte| *byte == b'-').count() == 4
}

fn is_time(text: &str) -> bool {
    text.len() == 20 && text.ends_with('Z') && text.as_bytes()[10] == b'T'
}

fn is_address(text: &str) -> bool {
    text.split('.').count() == 4 && text.split('.').all(|part| part.parse::<u8>().is_ok())
}

fn is_age(text: &str) -> bool {
    // The restart column of a pod contains the age of the last restart.
    let text = text.split_once(" (").map_or(text, |(_, age)| age.trim_end_matches(')'));
    let letters = text.trim_end_matches(" ago");
    !letters.is_empty()
        && letters.starts_with(|symbol: char| symbol.is_ascii_digit())
        && letters.ends_with(['s', 'm', 'h', 'd', 'y'])
        && letters
            .chars()
            .all(|symbol| symbol.is_ascii_digit() || matches!(symbol, 's' | 'm' | 'h' | 'd' | 'y'))
}

/// Replaces every timestamp in a text by the same placeholder.
fn without_times(text: &str) -> String {
    let mut out = String::new();
    let mut at = 0;
    while at < text.len() {
        if text.is_char_boundary(at + 20) && text.get(at..at + 20).is_some_and(is_time) {
            out.push_str("<time>");
            at += 20;
        } else {
            let symbol = text[at..].chars().next().unwrap();
            out.push(symbol);
            at += symbol.len_utf8();
        }
    }
    out
}

fn short(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() <= 300 {
        text
    } else {
        format!("{}…", text.chars().take(300).collect::<String>())
    }
}
