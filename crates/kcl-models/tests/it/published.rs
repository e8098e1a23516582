//! CRDs of operators, as they are published. `scripts/parts install operator-crds` puts them in place.

use std::{fs, path::Path};

use konverge_base::yaml;
use konverge_kcl_models::{GenerateOptions, generate, read_crds};
use konverge_testkit::{cache, installed};
use serde_json::Value;

use crate::core::Core;

fn documents(folder: &Path) -> Vec<Value> {
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files
        .iter()
        .flat_map(|file| yaml::long_documents(&fs::read_to_string(file).unwrap()).unwrap())
        .collect()
}

#[test]
fn the_kinds_of_six_operators_load_and_are_formatted() {
    let operators = installed("operator-crds", cache().join("operator-crds"));
    let mut folders: Vec<_> = fs::read_dir(operators)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    folders.sort();
    assert!(folders.len() >= 6, "{folders:?}");
    for folder in folders {
        let documents = documents(&folder);
        let roots = read_crds(&documents).unwrap();
        let kinds = roots.len();
        let mut core = Core::with(roots, &[]);
        core.check_all();
        let lines: usize = core.files.values().map(|text| text.lines().count()).sum();
        println!(
            "{}: {kinds} kinds, {} files, {lines} lines",
            folder.file_name().unwrap().display(),
            core.files.len()
        );
    }
}

/// `kcl import` writes 36,449 lines for this kind; the models have at most an eighth.
#[test]
fn equal_schemas_of_an_application_set_are_written_once_and_each_time_alike() {
    let folder = installed("operator-crds", cache().join("operator-crds/argo-cd"));
    let documents = documents(&folder);
    let options = GenerateOptions {
        only: vec!["ApplicationSet".to_owned()],
        import_path: "m".to_owned(),
    };
    let files = generate(read_crds(&documents).unwrap(), &options).unwrap();
    let lines: usize = files.values().map(|text| text.lines().count()).sum();
    assert!(lines < 36_449 / 8, "{lines}");
    assert_eq!(
        files.keys().collect::<Vec<_>>(),
        ["argoproj_io/v1alpha1/applicationset.k"]
    );
    let again: Vec<Value> = documents.iter().rev().cloned().collect();
    assert_eq!(generate(read_crds(&again).unwrap(), &options).unwrap(), files);
}
