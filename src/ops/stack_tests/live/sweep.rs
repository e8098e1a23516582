//! Cleans up after live tests that were killed.

use std::collections::BTreeMap;

use futures::{StreamExt as _, stream};

use super::{
    test_run::{TestRun, session_id, tests_folder},
    trusted_side::{AT_ONCE, TrustedSide},
};
use konverge_base::{error::UserError, model::StackId};
use konverge_state::store::Key;

/// Deletes the resources of each test whose lease nobody holds; returns the number of these tests.
///
/// # Errors
/// Errors of the store. A test that cannot be cleaned up gives a warning, and is left to a later run.
pub(super) async fn sweep(trusted: &TrustedSide) -> Result<usize, UserError> {
    let run = &trusted.run;
    let left = left_tests(trusted.backend.states.store().list(&tests_folder()).await?);
    run.check_interrupted()?;
    // It takes the term of a lease to see whether its holder is alive, so the tests are checked concurrently.
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

/// Returns the names of the tests in a listing, each with the identity of its state. A test that was killed before it
/// created anything has no state, but its part of the store is removed, too.
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

/// Returns true for a name that [`TestRun::new_name`] can create.
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
