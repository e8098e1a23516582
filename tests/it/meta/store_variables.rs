//! Every environment variable that a store of the state reads is kept from secret stores of kind `env`.

use std::{fs, path::Path};

use konverge_secrets::is_of_run;
use regex::Regex;

use super::rooms::rust_files;

#[test]
fn no_reference_reads_what_a_store_of_the_state_logs_in_with() {
    let read = Regex::new(r"\b(?:variable|var)\(\s*\[?\s*variables::([A-Z][A-Z0-9_]+)").unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates");
    let mut files = Vec::new();
    for room in ["state/src/store", "cloud/src"] {
        rust_files(&root.join(room), &mut files);
    }
    // The secret stores are what reads the variables for a reference.
    files.retain(|file| !file.starts_with(root.join("cloud/src/secret_stores")));
    let mut found = Vec::new();
    for file in files {
        let text = fs::read_to_string(file).unwrap();
        found.extend(read.captures_iter(&text).map(|name| name[1].to_owned()));
    }
    assert!(
        found.len() > 10 && found.contains(&"PGPASSWORD".to_owned()),
        "{found:?}"
    );
    // The name of the user, folders, and the address of a service are not credentials.
    let harmless = ["USER", "HOME", "DOCKER_CONFIG", "GCE_METADATA_HOST"];
    found.retain(|name| !harmless.contains(&name.as_str()) && !is_of_run(name));
    assert!(found.is_empty(), "{found:?}");
}
