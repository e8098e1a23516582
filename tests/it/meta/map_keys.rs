//! No dependency, of the program or of its tests, gives a key of a map a meaning.

use serde_json::Value;

/// `raw_value` and `arbitrary_precision` of `serde_json` are on for all crates as soon as one dependency turns them on.
/// Then a map with such a first key is read as what the value says, and its other keys are dropped: KCL output, answers
/// of an API server and of Terraform, and messages to workers.
#[test]
fn a_first_key_hides_no_other_keys() {
    for key in ["RawValue", "Number"] {
        let text = format!(r#"{{"$serde_json::private::{key}":"{{}}","a":1}}"#);
        let read: Value = serde_json::from_str(&text).expect("it is a map");
        assert_eq!(read.as_object().map(|map| map.len()), Some(2), "{key}");
    }
}
