//! Formats of strings: dates, addresses, colours and so on.
//!
//! The checks follow kube-openapi, which is sometimes looser and sometimes stricter than the standards behind
//! the names. Unknown formats accept everything; the schema determines which formats are checked.

use std::net::{IpAddr, Ipv6Addr};

use regex::Regex;

use crate::text::formats::dns_subdomain;

/// Whether a text has a format; dashes in the name of the format are ignored.
pub(crate) fn has_format(format: &str, text: &str) -> bool {
    match format.replace('-', "").as_str() {
        "bsonobjectid" => text.len() == 24 && text.bytes().all(|byte| byte.is_ascii_hexdigit()),
        "uri" => is_uri(text),
        "email" => is_email(text),
        "hostname" => is_hostname(text),
        "ipv4" => text.contains('.') && ip(text).is_some(),
        "ipv6" => text.contains(':') && text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => is_cidr(text),
        "mac" => is_mac(text),
        "uuid" => is_uuid(text, None, false),
        "uuid3" => is_uuid(text, Some('3'), false),
        "uuid4" => is_uuid(text, Some('4'), true),
        "uuid5" => is_uuid(text, Some('5'), true),
        "isbn" => is_isbn10(text) || is_isbn13(text),
        "isbn10" => is_isbn10(text),
        "isbn13" => is_isbn13(text),
        "creditcard" => is_credit_card(text),
        "ssn" => text.len() == 11 && SSN.with(|regex| matches(regex.as_ref(), text)),
        "hexcolor" => HEX_COLOR.with(|regex| matches(regex.as_ref(), text)),
        "rgbcolor" => RGB_COLOR.with(|regex| matches(regex.as_ref(), text)),
        "byte" => BASE64.with(|regex| matches(regex.as_ref(), text)),
        "date" => is_date(text),
        "duration" => is_duration(text),
        "datetime" => is_date_time(text),
        "k8sshortname" => text.len() <= 63 && !text.contains('.') && dns_subdomain(text).is_empty(),
        "k8slongname" => dns_subdomain(text).is_empty(),
        _ => true,
    }
}

// An expression that threads share creates hash maps depending on which of them use it at the same time. The keys of
// later maps of a thread would depend on that, and with them simulations, which run on several threads.
thread_local! {
    static SSN: Option<Regex> = Regex::new(r"^[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}$").ok();
    static HEX_COLOR: Option<Regex> = Regex::new("^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$").ok();
    static RGB_COLOR: Option<Regex> = {
        let part = r"\s*(0|[1-9][0-9]?|1[0-9][0-9]?|2[0-4][0-9]|25[0-5])\s*";
        Regex::new(&format!(r"^rgb\({part},{part},{part}\)$")).ok()
    };
    static BASE64: Option<Regex> = {
        let four = "[A-Za-z0-9+/]{4}";
        Regex::new(&format!("^(?:{four})*(?:[A-Za-z0-9+/]{{2}}==|[A-Za-z0-9+/]{{3}}=|{four})$")).ok()
    };
    static HOSTNAME: Option<Regex> = {
        let any = r"a-zA-Z0-9\p{S}\p{L}";
        let one = format!(r"[{any}]((-?[{any}]{{0,62}})?)");
        let parts = format!(r"([{any}](([{any}-]{{0,61}}[{any}])?)(\.)){{1,}}([a-zA-Z\p{{L}}]){{2,63}}");
        Regex::new(&format!("^({one}|{parts})$")).ok()
    };
    static CREDIT_CARD: Option<Regex> = {
        let cards = "4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|\
                     3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35[0-9]{3})[0-9]{11}";
        Regex::new(&format!("^(?:{cards})$")).ok()
    };
    static LOOSE_DURATION: Option<Regex> = Regex::new("([0-9]+)\\s*([A-Za-zµ]+)").ok();
    static TIME: Option<Regex> = {
        Regex::new("^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$").ok()
    };
}

fn matches(regex: Option<&Regex>, text: &str) -> bool {
    regex.is_some_and(|regex| regex.is_match(text))
}

/// Whether a text is an absolute URI or an absolute path.
fn is_uri(text: &str) -> bool {
    let printable = text.chars().all(|c| !c.is_control());
    let scheme = text.split_once(':').map(|(scheme, _)| scheme).filter(|scheme| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
    });
    let rest = scheme.map_or(text, |scheme| text.get(scheme.len() + 1..).unwrap_or_default());
    let has_path = rest.starts_with('/');
    let host = rest.strip_prefix("//").map(|rest| rest.split(['/', '?']).next().unwrap_or_default());
    let is_host_valid = host.is_none_or(|host| {
        let host = host.rsplit('@').next().unwrap_or_default();
        let (name, port) = match host.rsplit_once(':') {
            Some((name, port)) if !port.ends_with(']') => (name, port),
            _ => (host, ""),
        };
        port.bytes().all(|byte| byte.is_ascii_digit()) && !name.contains([' ', '<', '>', '"', '\\', '^', '`'])
    });
    printable
        && !text.is_empty()
        && is_host_valid
        && are_escapes_valid(text)
        && (has_path || scheme.is_some())
}

/// Whether every `%` is followed by two hexadecimal digits.
fn are_escapes_valid(text: &str) -> bool {
    text.split('%')
        .skip(1)
        .all(|part| part.len() >= 2 && part.bytes().take(2).all(|byte| byte.is_ascii_hexdigit()))
}

fn is_email(text: &str) -> bool {
    let inner = match text.strip_suffix('>').and_then(|text| text.split_once('<')) {
        Some((_, inner)) => inner,
        None => text,
    };
    let Some((local, domain)) = inner.rsplit_once('@') else { return false };
    let is_valid = |part: &str| {
        !part.is_empty()
            && part.split('.').all(|atom| {
                !atom.is_empty()
                    && atom
                        .chars()
                        .all(|c| !c.is_whitespace() && !c.is_control() && !"()<>@,;:\\\"[]".contains(c))
            })
    };
    let quoted = local.len() > 2 && local.starts_with('"') && local.ends_with('"');
    (is_valid(local) || quoted) && (is_valid(domain) || (domain.starts_with('[') && domain.ends_with(']')))
}

fn is_hostname(text: &str) -> bool {
    text.len() <= 255
        && text.split('.').all(|part| part.len() <= 63)
        && HOSTNAME.with(|regex| matches(regex.as_ref(), text))
}

/// Parses an IP address; leading zeros in IPv4 numbers are allowed.
fn ip(text: &str) -> Option<IpAddr> {
    text.parse().ok().or_else(|| {
        let parts: Vec<&str> = text.split('.').collect();
        let plain = |part: &&str| match part.trim_start_matches('0') {
            "" if !part.is_empty() => "0".to_owned(),
            other => other.to_owned(),
        };
        let plain: Vec<String> = parts.iter().map(plain).collect();
        if parts.len() == 4 { plain.join(".").parse().ok() } else { None }
    })
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let max_bits = match ip(address) {
        Some(IpAddr::V4(_)) => 32,
        Some(IpAddr::V6(_)) => 128,
        None => return false,
    };
    bits.bytes().all(|byte| byte.is_ascii_digit()) && bits.parse::<u32>().is_ok_and(|bits| bits <= max_bits)
}

fn is_mac(text: &str) -> bool {
    let (separator, digits) = match text.as_bytes().get(2) {
        Some(b':') => (':', 2),
        Some(b'-') => ('-', 2),
        _ => ('.', 4),
    };
    let parts: Vec<&str> = text.split(separator).collect();
    let bytes = parts.len() * digits / 2;
    matches!(bytes, 6 | 8 | 20)
        && parts.iter().all(|part| part.len() == digits && part.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Whether a text has 32 digits, without dashes or with dashes at the usual positions.
///
/// `version` is the required version, if any. `checks_variant` requires the variant of RFC 4122.
fn is_uuid(text: &str, version: Option<char>, checks_variant: bool) -> bool {
    let digits: Vec<char> = text.chars().filter(|c| *c != '-').collect();
    let mut dashes = 0;
    for (index, character) in text.chars().enumerate() {
        if character == '-' {
            let before = index - dashes;
            if !matches!(before, 8 | 12 | 16 | 20) || text.as_bytes().get(index + 1) == Some(&b'-') {
                return false;
            }
            dashes += 1;
        }
    }
    digits.len() == 32
        && digits.iter().all(char::is_ascii_hexdigit)
        && version.is_none_or(|version| digits.get(12) == Some(&version))
        && (!checks_variant || digits.get(16).is_some_and(|c| "89abAB".contains(*c)))
}

/// Returns the digits of a number without blanks and dashes; `None` if it contains another character.
fn digits(text: &str) -> Option<Vec<u32>> {
    text.chars().filter(|c| !c.is_whitespace() && *c != '-').map(|c| c.to_digit(10)).collect()
}

fn is_isbn10(text: &str) -> bool {
    let plain: String = text.chars().filter(|c| !c.is_whitespace() && *c != '-').collect();
    let (body, last) = match plain.strip_suffix('X') {
        Some(body) => (body, Some(10)),
        None => (plain.as_str(), None),
    };
    let Some(mut digits) = digits(body) else { return false };
    digits.extend(last);
    digits.len() == 10 && (1..).zip(&digits).map(|(weight, digit)| weight * digit).sum::<u32>() % 11 == 0
}

fn is_isbn13(text: &str) -> bool {
    let Some(digits) = digits(text) else { return false };
    let weights = [1, 3].into_iter().cycle();
    digits.len() == 13 && weights.zip(&digits).map(|(weight, digit)| weight * digit).sum::<u32>() % 10 == 0
}

fn is_credit_card(text: &str) -> bool {
    let plain: String = text.chars().filter(char::is_ascii_digit).collect();
    if !CREDIT_CARD.with(|regex| matches(regex.as_ref(), &plain)) {
        return false;
    }
    let double = |digit: u32| if digit >= 5 { digit * 2 - 9 } else { digit * 2 };
    let digits = plain.chars().rev().filter_map(|c| c.to_digit(10)).enumerate();
    digits.map(|(at, digit)| if at % 2 == 1 { double(digit) } else { digit }).sum::<u32>() % 10 == 0
}

fn is_date(text: &str) -> bool {
    let shape = text.len() == 10
        && text.bytes().enumerate().all(|(at, byte)| match at {
            4 | 7 => byte == b'-',
            _ => byte.is_ascii_digit(),
        });
    let part = |from: usize, to: usize| text.get(from..to).and_then(|part| part.parse::<i16>().ok());
    let (Some(year), Some(month), Some(day)) = (part(0, 4), part(5, 7), part(8, 10)) else { return false };
    let (Ok(month), Ok(day)) = (i8::try_from(month), i8::try_from(day)) else { return false };
    shape && jiff::civil::Date::new(year, month, day).is_ok()
}

fn is_date_time(text: &str) -> bool {
    let lower = text.to_lowercase();
    let mut parts = lower.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else { return false };
    TIME.with(|regex| {
        let found = regex.as_ref().and_then(|regex| regex.captures(time));
        // `99` for an absent part exceeds every limit, so the time is rejected.
        let part =
            |at: usize| found.as_ref().and_then(|found| found.get(at)).map_or("99", |part| part.as_str());
        is_date(date) && part(1) <= "23" && part(2) <= "59" && part(3) <= "59"
    })
}

/// Whether a text is a duration in Go's form, or contains a number with a unit.
fn is_duration(text: &str) -> bool {
    // The last name of each unit may be continued: `sec` also stands for `seconds`.
    const UNITS: &[&[&str]] = &[
        &["ns", "nano"],
        &["us", "µs", "micro"],
        &["ms", "milli"],
        &["s", "sec"],
        &["m", "min"],
        &["h", "hr", "hour"],
        &["d", "day"],
        &["w", "wk", "week"],
    ];
    let is_known = |unit: &str| {
        let unit = unit.to_lowercase();
        UNITS.iter().any(|names| {
            names.contains(&unit.as_str()) || names.last().is_some_and(|name| unit.starts_with(name))
        })
    };
    let plain = text.strip_prefix(['-', '+']).unwrap_or(text);
    if plain == "0" {
        return true;
    }
    let is_loose = |regex: &Regex| {
        regex.captures_iter(text).any(|found| found.get(2).is_some_and(|unit| is_known(unit.as_str())))
    };
    LOOSE_DURATION.with(|regex| regex.as_ref().is_some_and(is_loose)) || has_empty_fraction(plain)
}

/// Whether a text is a number with a decimal point but no fraction, and a unit: `1.s`.
///
/// It is the only form of Go's durations that does not contain a number directly before a unit.
fn has_empty_fraction(text: &str) -> bool {
    let Some((number, unit)) = text.split_once('.') else { return false };
    !number.is_empty()
        && number.bytes().all(|byte| byte.is_ascii_digit())
        && matches!(unit, "ns" | "us" | "µs" | "μs" | "ms" | "s" | "m" | "h")
}
