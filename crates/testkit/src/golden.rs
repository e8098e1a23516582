//! Golden files: results that were reviewed once, and must not change. `UPDATE_GOLDEN=1` writes them; review the
//! difference before you commit.

use std::fs;

/// Compares a text with `tests/golden/<name>`.
///
/// # Panics
/// The texts differ.
pub fn golden(name: &str, actual: &str) {
    let path = super::root().join("tests/golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::create_dir_all(path.parent().expect("it has one")).expect("the folder can be made");
        fs::write(&path, actual).expect("the file can be written");
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        actual,
        expected,
        "{} differs; UPDATE_GOLDEN=1 writes it",
        path.display()
    );
}
