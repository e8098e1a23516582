//! Cleans up what killed tests left.

use std::collections::BTreeMap;

use futures::{StreamExt as _, stream};

use super::{
    test_run::{TestRun, session_id, tests_folder},
    trusted_side::{AT_ONCE, TrustedSide},
};
use konverge_base::{error::UserError, model::StackId};
use konverge_state::store::Key;

/// Deletes what each test left whose lease nobody holds; returns their number.
///
/// # Errors
/// Errors of the store. A test that cannot be cleaned up is a note, and stays for a later run.
pub(super) async fn sweep(trusted: &TrustedSide) -> Result<usize, UserError> {
    let run = &trusted.run;
    let left = left_tests(trusted.backend.states.store().list(&tests_folder()).await?);
    run.check_interrupted()?;
    // Whether a holder is at work is known after its term, so they are looked at together.
    let each = left.into_iter().map(async |(name, id)| {
        let ended = match TestRun::open(trusted, &name, id, None).await {
            Ok(test) => test.end().await,
            Err(error) => Err(error),
        };
        match ended {
            Ok(()) => 1,
            Err(error) => {
                run.warn(&format!("the live test {name} is not cleaned up"), error);
                0
            }
        }
    });
    let each: Vec<_> = each.collect();
    Ok(stream::iter(each)
        .buffer_unordered(AT_ONCE)
        .collect::<Vec<_>>()
        .await
        .iter()
        .sum())
}

/// The names of the tests in a listing, with the identity that each has a state of. A test that was killed before it
/// made anything has none: its part of the store goes all the same.
fn left_tests(keys: Vec<Key>) -> BTreeMap<String, StackId> {
    let mut tests = BTreeMap::new();
    for key in keys {
        let mut parts = key.as_str().split('/').skip(1);
        let Some(name) = parts.next().filter(|name| is_name(name)) else {
            continue;
        };
        let nothing = || StackId::new(Some("test"), name, "nothing").expect("letters and digits alone");
        let known = tests.entry(name.to_owned()).or_insert_with(nothing);
        if let (Some("stacks"), Some(id)) = (parts.next(), parts.next())
            && let Ok(id) = Key::from_listing(id).last().parse::<StackId>()
            && id != session_id(name)
        {
            *known = id;
        }
    }
    tests
}

/// True for a name that a test gives itself.
fn is_name(name: &str) -> bool {
    name.len() == 10 && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_found_by_their_keys() {
        let keys = [
            "tests/0a1b2c3d4e/index/0001",
            "tests/0a1b2c3d4e/stacks/test%2F0a1b2c3d4e%2Fsession/lease/1/1",
            "tests/0a1b2c3d4e/stacks/test%2F0a1b2c3d4e%2Fshop-dev/state/0000000001",
            "tests/0a1b2c3d4e/stacks/test%2F0a1b2c3d4e%2Fshop-dev/state/0000000002",
            "tests/ffffffffff/keys/review",
            "tests/..%2Fescape/stacks/x",
        ];
        let found = left_tests(keys.map(Key::from_listing).to_vec());
        let id = "test/0a1b2c3d4e/shop-dev".parse().unwrap();
        let nothing = "test/ffffffffff/nothing".parse().unwrap();
        assert_eq!(
            found.into_iter().collect::<Vec<_>>(),
            [("0a1b2c3d4e".to_owned(), id), ("ffffffffff".to_owned(), nothing)]
        );
    }
}
