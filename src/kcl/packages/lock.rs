//! The entries of a `kcl.mod.lock`.

/// The lock entry of a package, with its name as in `kcl.mod`.
pub(super) fn locked_package<'a>(lock: &'a toml::Table, name: &str) -> Option<(String, &'a toml::Value)> {
    let entries = lock.get("dependencies")?.as_table()?;
    let (original, entry) = entries
        .iter()
        .find(|(original, _)| original.replace('-', "_") == name)?;
    Some((original.clone(), entry))
}
