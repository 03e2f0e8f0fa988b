//! Transcripts: parsing, running and normalizing.
//!
//! Values that differ between runs (ages, ids, versions, addresses, tokens) are replaced by placeholders, and the padding of
//! tables that depends on them by three spaces. A log line of client-go that depends on the load of the machine is left
//! out. Everything else must match exactly.

use std::sync::LazyLock;

use regex::Regex;

use crate::program::Kubectl;

/// Runs the commands of a transcript and returns the transcript of that run.
pub(crate) async fn play(script: &str, kubectl: &Kubectl) -> String {
    let mut seen = String::new();
    let mut lines = script.lines().peekable();
    while let Some(line) = lines.next() {
        if line.starts_with('#') {
            seen += line;
            seen.push('\n');
        }
        let Some(command) = line.strip_prefix("$ kubectl ") else { continue };
        seen += line;
        seen.push('\n');
        let mut input = String::new();
        while let Some(text) = lines.peek().and_then(|line| line.strip_prefix('>')) {
            seen.extend([">", text, "\n"]);
            input += text.strip_prefix(' ').unwrap_or(text);
            input.push('\n');
            lines.next();
        }
        let output = kubectl.run(&words(command), &input).await;
        seen += &comparable(&String::from_utf8_lossy(&output.stdout), kubectl);
        seen += &comparable(&String::from_utf8_lossy(&output.stderr), kubectl);
        match output.status.code() {
            Some(0) => {}
            Some(code) => seen.extend(["(exit ", &code.to_string(), ")\n"]),
            None => seen += "(killed)\n",
        }
    }
    seen
}

/// Splits a command into words; single quotes preserve spaces.
pub(crate) fn words(command: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted) = (Vec::new(), None::<String>, false);
    for letter in command.chars() {
        match letter {
            '\'' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            ' ' if !quoted => words.extend(word.take()),
            letter => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}

/// Replaces what changes between runs.
pub(crate) fn comparable(text: &str, kubectl: &Kubectl) -> String {
    static RULES: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
        let rules = [
            (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UID"),
            (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "TIME"),
            (r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d \w{3} \d{4} \d\d:\d\d:\d\d \+0000", "TIME"),
            (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+ \+0000", "TIME"),
            (r"(LIVE|MERGED)-\d+", "$1"),
            (r#"(resourceVersion\\?"?: ?\\?|Resource Version:  +)"?\d+\\?"?"#, "${1}VERSION"),
            (r"https://127\.0\.0\.1:\d+", "SERVER"),
            (r"\beyJ[\w-]+\.[\w-]+\.[\w-]+", "TOKEN"),
            (r"\b10\.0\.\d+\.\d+\b", "ADDRESS"),
        ];
        rules.into_iter().map(|(pattern, word)| (Regex::new(pattern).unwrap(), word)).collect()
    });
    static AGE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"(^|   )(\d+m)?\d+s( ago)?(   |$)").unwrap());
    static GAP: LazyLock<Regex> = LazyLock::new(|| Regex::new(r" {3,}").unwrap());
    // Regression: client-go logs this line if a timeout ends a watch within its first second, which happened on a
    // loaded machine only.
    static SHORT_WATCH: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"^I\d{4} .* reflector\.go:\d+\] .*very short watch: ").unwrap());
    let home = kubectl.home.display().to_string();
    let mut out = String::new();
    for line in text.lines().filter(|line| !SHORT_WATCH.is_match(line)) {
        let mut line = line.replace(&home, "HOME");
        for (pattern, word) in RULES.iter() {
            line = pattern.replace_all(&line, *word).into_owned();
        }
        let indent = line.len() - line.trim_start().len();
        let (indent, rest) = line.split_at(indent);
        let aged = AGE.replace_all(rest, "${1}AGE$4");
        let table = aged != rest || rest.contains("AGE") || rest.contains("ADDRESS");
        let rest = if table { GAP.replace_all(&aged, "   ") } else { aged };
        out += format!("{indent}{rest}").trim_end();
        out.push('\n');
    }
    out
}
