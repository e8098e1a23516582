//! Reading a Spec: any text, no panic; and what was read, written out, reads back as the same.
#![no_main]

use std::collections::BTreeMap;

use konverge_engine::spec::read_text;
use konverge_base::yaml;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(spec) = read_text(text, "fuzzed.yaml") else {
        return;
    };
    let written = yaml::to_string(&BTreeMap::from([("resources", &spec.resources)]));
    let again = read_text(&written, "written.yaml").expect("what was read can be written");
    assert_eq!(again.digest(), spec.digest(), "{written}");
});
