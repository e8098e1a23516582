//! The import scanner: any bytes, no panic, and nothing that a line of its own after them could not also be.
#![no_main]

use konverge_repo::affected::scan;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for import in scan(bytes) {
        assert!(!import.path.is_empty());
        assert!(!import.path.contains(['/', '\n', ' ', '"']), "{import:?}");
    }
    // What stands before a comment can not be hidden by it.
    let before = scan(bytes);
    let mut longer = bytes.to_vec();
    longer.extend_from_slice(b"\n# import never.here\n");
    assert!(scan(&longer).len() >= before.len());
});
