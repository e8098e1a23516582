//! The settings parser: any bytes, no panic, and the same answer twice.
#![no_main]

use konverge_repo::konfig::Settings;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    assert_eq!(Settings::parse(bytes), Settings::parse(bytes));
});
