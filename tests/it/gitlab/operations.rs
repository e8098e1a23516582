//! Every operation that GitLab's description has here is one that the client uses, so that the excerpt stays small and
//! no request goes unchecked. The fake itself refuses a request or a parameter that is not in it.

use std::{fs, path::Path};

use crate::support::gitlab::operations;

#[test]
fn the_excerpt_has_no_operation_that_the_client_does_not_use() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/gitlab/src");
    let text: String = fs::read_dir(sources)
        .unwrap()
        .map(|file| fs::read_to_string(file.unwrap().path()).unwrap())
        .collect();
    let operations = operations();
    assert!(operations.len() > 30, "{}", operations.len());
    for operation in operations {
        let (_, path) = operation.split_once(' ').unwrap();
        // The last fixed part of its path.
        let part = path
            .split('/')
            .rfind(|part| !part.is_empty() && !part.starts_with('{'))
            .unwrap();
        assert!(
            text.contains(part),
            "{operation}: nothing in the client says `{part}`"
        );
    }
}
