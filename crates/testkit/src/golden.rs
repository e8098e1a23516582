//! Golden files: what was looked at once and has to stay so. `UPDATE_GOLDEN=1` writes them; look at the difference
//! before committing.

use std::fs;

/// Holds a text against `tests/golden/<name>`.
///
/// # Panics
/// If they differ.
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
