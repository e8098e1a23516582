//! Every setting of the published providers of the four clouds, at any depth, as `scripts/provider-settings` recorded
//! them: it is on the list of what a Spec may choose, or refused.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::super::{FREE, free_settings};
use super::check_settings;

/// The settings by the name of the provider.
fn published() -> BTreeMap<&'static str, Vec<&'static str>> {
    let mut found: BTreeMap<_, Vec<_>> = BTreeMap::new();
    let mut provider = "";
    for line in include_str!("published_settings.txt").lines() {
        match line.strip_prefix("# ") {
            Some(head) => {
                let source = head.split(' ').next().unwrap();
                provider = source.split_once('/').unwrap().1;
            }
            None => found.entry(provider).or_default().push(line),
        }
    }
    found
}

/// A configuration that has this setting alone, with a value that says something.
fn configurations(path: &str) -> [Value; 3] {
    let as_object = |value: Value| path.rsplit('.').fold(value, |inner, name| json!({name: inner}));
    let as_list = path
        .rsplit('.')
        .fold(json!("x"), |inner, name| json!({name: [inner]}));
    [as_object(json!("x")), as_object(json!(true)), as_list]
}

#[test]
fn each_setting_of_a_published_schema_is_listed_or_refused() {
    let mut allowed = String::new();
    for (provider, settings) in published() {
        let free: BTreeSet<_> = free_settings(provider).split(' ').collect();
        for path in settings {
            let is_free = free.contains(path.split('.').next().unwrap());
            for configuration in configurations(path) {
                let answer = check_settings(provider, &configuration, &[]);
                assert_eq!(answer.is_ok(), is_free, "{provider}: {configuration}");
            }
            if is_free {
                allowed += &format!("{provider} {path}\n");
            }
        }
    }
    // Someone who changes the list looks at what it allows.
    let known = include_str!("published_settings_allowed.txt");
    assert_eq!(allowed, known, "the settings that a Spec may choose");
}

/// A second look at what is allowed, by words: it does not trust the list.
#[test]
fn no_setting_that_is_allowed_sounds_like_an_identity() {
    const WORDS: [&str; 22] = [
        "access",
        "account",
        "arn",
        "assume",
        "auth",
        "cert",
        "cli",
        "client",
        "credential",
        "endpoint",
        "external",
        "host",
        "identity",
        "impersonate",
        "key",
        "msi",
        "oidc",
        "profile",
        "role",
        "secret",
        "tenant",
        "token",
    ];
    // What each of them does is known: it limits, retries, labels, or waits.
    const HARMLESS: [&str; 12] = [
        "allowed_account_ids",
        "client_connect_timeout",
        "client_read_timeout",
        "forbidden_account_ids",
        "ignore_tags.key_prefixes",
        "ignore_tags.keys",
        "s3_us_east_1_regional_endpoint",
        "skip_credentials_validation",
        "skip_requesting_account_id",
        "token_bucket_rate_limiter_capacity",
        "use_dualstack_endpoint",
        "use_fips_endpoint",
    ];
    let mut seen = BTreeSet::new();
    for line in include_str!("published_settings_allowed.txt").lines() {
        let (provider, path) = line.split_once(' ').unwrap();
        let setting = path.rsplit('.').next().unwrap();
        // Azure's `features` say how a resource is deleted, by its kind.
        let is_suspect = setting
            .split('_')
            .any(|word| WORDS.contains(&word.trim_end_matches('s')));
        if path.starts_with("features") || !is_suspect {
            continue;
        }
        seen.insert(path);
        assert!(HARMLESS.contains(&path), "{provider} {path}");
    }
    assert_eq!(seen.len(), HARMLESS.len(), "{seen:?}");
}

/// A name on the list that no schema has would be a typing error. Older and newer versions have some more.
#[test]
fn each_name_on_the_list_is_one_of_a_schema() {
    const OTHER_VERSIONS: [&str; 10] = [
        "default_name",
        "disable_default_output",
        "enable_preflight",
        "ignore_no_op_changes",
        "location",
        "maximum_busy_retry_attempts",
        "poll_interval",
        "s3_force_path_style",
        "skip_credentials_validation",
        "skip_get_ec2_platforms",
    ];
    let published = published();
    for (providers, free) in FREE {
        let known: Vec<_> = providers
            .split(' ')
            .filter_map(|name| published.get(name))
            .collect();
        for name in free.split(' ').filter(|_| !known.is_empty()) {
            let is_known = known.iter().any(|settings| settings.contains(&name));
            assert!(is_known || OTHER_VERSIONS.contains(&name), "{providers}: {name}");
        }
    }
}
