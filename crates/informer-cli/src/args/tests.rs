//! Tests of the command line arguments.

use super::*;

fn parse(line: &str) -> Result<Command, clap::Error> {
    Args::try_parse_from(line.split(' ')).and_then(Args::into_command)
}

#[test]
fn command_line_definition_is_consistent() {
    Args::command().debug_assert();
}

#[test]
fn default_command_watches_pods() {
    let Command::Watch(watch) = Command::default_command(Demo::default()) else { panic!("not a watch") };
    assert_eq!(watch.resources, ["pods"]);
    assert!(!watch.once && watch.demo.size().is_none());
    assert_eq!(watch.without_cluster, WithoutCluster::StartDemo);
}

#[test]
fn demo_options_are_the_same_for_all_commands() {
    for (line, expected) in [
        ("informer", None),
        ("informer --demo", Some(40)),
        ("informer --demo-pods 7", Some(7)),
        ("informer watch pods --demo", Some(40)),
        ("informer --demo watch pods", Some(40)),
        ("informer --demo-pods 7 get pods", Some(7)),
        ("informer --demo get pods --demo-pods 7", Some(7)),
        ("informer --demo apiserver", Some(40)),
        ("informer get --demo-pods 7 pods", Some(7)),
        ("informer apiserver --demo --demo-pods 7 --kubeconfig k", Some(7)),
    ] {
        let demo = match parse(line).unwrap() {
            Command::Watch(watch) => watch.demo,
            Command::Get(get) => get.into_watch().demo,
            Command::Apiserver(apiserver) => apiserver.demo,
            other => panic!("{other:?}"),
        };
        assert_eq!(demo.size(), expected, "{line}");
    }
}

/// Regression: `informer --demo get pods` was rejected, and the error did not mention that `--demo` has to follow the
/// command.
#[test]
fn demo_options_before_a_command_that_cannot_use_them_are_rejected() {
    for (line, expected) in [
        ("informer --demo get pods --kubeconfig k", "a demo cluster has no kubeconfig"),
        ("informer --demo watch pods --context c", "a demo cluster has no kubeconfig"),
        ("informer --demo explain", "this command has no demo cluster"),
    ] {
        let error = parse(line).unwrap_err().to_string();
        assert!(error.contains(expected), "{line}: {error}");
    }
}

#[test]
fn color_is_found_also_in_an_invalid_command_line() {
    for (line, expected) in [
        ("informer watch pods", Color::Auto),
        ("informer --color never", Color::Never),
        ("informer watch pods --color=always --unknown", Color::Always),
        ("informer watch pods --color", Color::Auto),
        ("informer watch pods --color blue", Color::Auto),
        ("informer watch pods --colors never", Color::Auto),
    ] {
        let args: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        assert_eq!(Color::find(&args), expected, "{line}");
    }
    for line in ["informer --color never watch pods", "informer watch pods --color never"] {
        assert!(Args::try_parse_from(line.split(' ')).is_ok(), "{line}");
    }
    assert!(Args::try_parse_from(["informer", "--color", "blue"]).is_err());
}

#[test]
fn number_after_demo_is_found() {
    for (line, expected) in [
        ("informer --demo 100", Some("100")),
        ("informer watch --demo 100 pods", Some("100")),
        ("informer watch pods --demo=100", Some("100")),
        ("informer apiserver --demo 100", Some("100")),
        ("informer watch pods --demo", None),
        ("informer watch --demo pods --demo-pods 100", None),
        ("informer watch pods -n 100 --demo", None),
    ] {
        let args: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        assert_eq!(number_after_demo(&args), expected, "{line}");
    }
}

#[test]
fn get_prints_objects_once_unless_it_watches() {
    let parse = |line: &str| match Args::try_parse_from(line.split(' ')).map(|args| args.command) {
        Ok(Some(Command::Get(get))) => get.into_watch(),
        other => panic!("{other:?}"),
    };
    let get = parse("informer get pods/web-0 -o name");
    assert!(get.once && get.view() == View::Objects && get.output == Format::Name);
    assert_eq!(get.resources, ["pods/web-0"]);
    assert_eq!(get.headers, Headers::Shown);
    assert_eq!(parse("informer get pods --no-headers").headers, Headers::Hidden);
    let get = parse("informer get pods -w -A");
    assert!(!get.once && get.view() == View::Events && get.all_namespaces);
    for line in ["informer get pods --live", "informer get pods -w --live"] {
        let get = parse(line);
        assert!(!get.once && get.view() == View::Live, "{line}");
    }
    let help = Args::try_parse_from(["informer", "get", "--help"]).unwrap_err().to_string();
    assert!(help.contains("Prints the current objects") && help.contains("informer get pods -w"), "{help}");
    assert!(!help.contains("Print the existing objects") && help.contains("--no-headers"), "{help}");
    let help = Args::try_parse_from(["informer", "watch", "--help"]).unwrap_err().to_string();
    assert!(help.contains("Prints objects and their changes") && help.contains("--once"), "{help}");
}

#[test]
fn durations_are_parsed() {
    for (text, expected) in [("60s", 60_000), ("1m30s", 90_000), ("2h", 7_200_000), ("500ms", 500)] {
        assert_eq!(duration(text), Ok(Duration::from_millis(expected)), "{text}");
    }
    for text in
        ["", "5", "s", "-5s", "1.5s", "10d", "0s", "99999999999s", "4294967295h4294967295h", "5 s", "٣s"]
    {
        assert!(duration(text).is_err(), "{text}");
    }
}

/// Bug: the name of a group was validated as a namespace, so `shop.web` was rejected, with a hint about `-A`.
#[test]
fn name_of_a_shard_group_is_validated_as_its_builder_does() {
    for (text, expected) in [
        ("shop/budget-operator", ("shop", "budget-operator")),
        ("shop/shop.web", ("shop", "shop.web")),
        ("a/0", ("a", "0")),
    ] {
        let Command::Shards(shards) = parse(&format!("informer shards {text}")).unwrap() else {
            panic!("{text}")
        };
        assert_eq!((shards.group.namespace.as_str(), shards.group.name.as_str()), expected);
    }
    let too_long = format!("shop/{}", "x".repeat(64));
    for text in [
        "shop",
        "shop/",
        "/web",
        "Shop/web",
        "shop/Web",
        "shop.a/web",
        "shop/a..b",
        "shop/-a",
        "a/b/c",
        &too_long,
    ] {
        let error = parse(&format!("informer shards {text}")).unwrap_err().to_string();
        assert!(error.contains("(in NAME also '.')") && !error.contains("-A"), "{text}: {error}");
    }
}

#[test]
fn demo_pods_sets_size_and_implies_demo() {
    let parse = |line: &str| match Args::try_parse_from(line.split(' ')).map(|args| args.command) {
        Ok(Some(Command::Watch(watch))) => Ok((watch.demo.size(), watch.resources)),
        Ok(_) => Err("another command".to_owned()),
        Err(error) => Err(error.to_string()),
    };
    assert_eq!(parse("informer watch --demo pods,svc"), Ok((Some(40), vec!["pods".into(), "svc".into()])));
    assert_eq!(parse("informer watch --demo --demo-pods 500 pods"), Ok((Some(500), vec!["pods".into()])));
    assert_eq!(parse("informer watch pods --demo-pods 500"), Ok((Some(500), vec!["pods".into()])));
    assert!(parse("informer watch pods --demo-pods 0").is_err());
    assert!(parse("informer watch pods --demo --context a").is_err());
    assert!(parse("informer watch pods --demo-pods 5 --kubeconfig k").is_err());
    assert!(parse("informer watch pods -A -n a").is_err());
    assert!(parse("informer watch pods -n ../x").is_err());
    assert!(parse("informer watch").is_err());
}
