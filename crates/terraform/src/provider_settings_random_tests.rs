//! A setting that is on no list is refused, whatever its name and wherever it stands: so no schema has to be searched
//! for names of identities.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::super::free_settings;
use super::check_settings;
use konverge_base::error::{ErrorKind, UserError};

/// The providers of the four clouds, and one that no list names.
const PROVIDERS: [&str; 9] = [
    "aws",
    "awscc",
    "google",
    "google-beta",
    "azurerm",
    "azapi",
    "azuread",
    "alicloud",
    "thing",
];

/// Words that settings of identities are made of.
const WORDS: [&str; 18] = [
    "assume",
    "role",
    "arn",
    "impersonate",
    "service",
    "account",
    "profile",
    "client",
    "id",
    "tenant",
    "oidc",
    "msi",
    "use",
    "cli",
    "token",
    "region",
    "tags",
    "default",
];

/// A name: any text, words as published settings have them, or almost a free one.
fn name() -> impl Strategy<Value = String> {
    let words = proptest::collection::vec(proptest::sample::select(&WORDS[..]), 1..4);
    let free = proptest::sample::select(&PROVIDERS[..]).prop_flat_map(|provider| {
        let names: Vec<&'static str> = free_settings(provider).split(' ').collect();
        (proptest::sample::select(names), "[ _\\-A-Z.]|s|/|\u{200b}")
    });
    prop_oneof![
        ".{0,12}",
        words.clone().prop_map(|words| words.join("_")),
        words.prop_map(|words| words.join("-").to_uppercase()),
        free.prop_map(|(free, end)| format!("{free}{end}")),
    ]
}

/// A value that chooses something.
fn leaf() -> impl Strategy<Value = Value> {
    prop_oneof![
        "[^ \t\n]{1,20}"
            .prop_filter("an empty text sets nothing", |text| !text.trim().is_empty())
            .prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        Just(json!({})),
        Just(json!("arn:aws:iam::444455556666:role/apply")),
        Just(json!("apply@prod.iam.gserviceaccount.com")),
    ]
}

/// The value, nested in lists and blocks whose names may be free ones.
fn nested() -> impl Strategy<Value = Value> {
    leaf().prop_recursive(5, 8, 1, |inner| {
        prop_oneof![
            inner.clone().prop_map(|inner| json!([inner])),
            inner.clone().prop_map(|inner| json!([null, "", inner])),
            (name(), inner.clone()).prop_map(|(name, inner)| json!({name: inner})),
            inner.prop_map(|inner| json!({"region": "eu-west-1", "tags": inner})),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn a_setting_that_is_not_listed_is_refused(
        provider in proptest::sample::select(&PROVIDERS[..]),
        name in name(),
        value in nested(),
        is_beside_free in any::<bool>(),
    ) {
        let free: Vec<&str> = free_settings(provider).split(' ').collect();
        prop_assume!(!free.contains(&name.as_str()));
        // A credential that is a reference to a secret does not choose an identity: its stack must be allowed to read
        // it.
        prop_assume!(!value.to_string().contains("ref+"));
        let mut configuration = Map::new();
        if is_beside_free {
            configuration.insert(free[0].to_owned(), json!([]));
        }
        configuration.insert(name, value);
        let refused = check_settings(provider, &Value::Object(configuration.clone()), &[]);
        let refused = refused.map_err(UserError::from);
        prop_assert!(refused.is_err(), "{} {:?}", provider, configuration);
        prop_assert_eq!(refused.unwrap_err().kind, ErrorKind::Policy);
    }
}
