//! Variables in the paths of settings and entries: `${PWD}`, `${KCL_MOD}`, `${<package>:KCL_MOD}`.

use konverge_base::model::{
    RepoPath,
    stack::{CompileSetup, GET_KCL},
};

/// Returns the variable at the start of a path, and the rest.
pub(super) fn variable(text: &str) -> Option<(&str, &str)> {
    let (variable, rest) = text.strip_prefix("${")?.split_once('}')?;
    (rest.is_empty() || rest.starts_with('/')).then(|| (variable, rest.trim_start_matches('/')))
}

/// Returns the name and the folder of the dependency in a variable `name:KCL_MOD`.
pub(super) fn package_folder(
    setup: &CompileSetup,
    variable: &str,
    text: &str,
) -> Result<(String, RepoPath), String> {
    let name = variable.strip_suffix(":KCL_MOD").ok_or_else(|| {
        format!("`{text}`: only ${{PWD}}, ${{KCL_MOD}} and ${{<package>:KCL_MOD}} are known")
    })?;
    // A name may have a `-` in `kcl.mod`, but not in an import.
    let name = &name.replace('-', "_");
    if let Some(known) = setup.packages.iter().find(|(known, _)| known == name) {
        return Ok(known.clone());
    }
    if setup.remote_packages.iter().any(|package| package.name == *name) {
        Err(format!(
            "`{text}`: the package `{name}` is fetched, and an entry must be a file of this repository: run `kcl mod vendor` and commit the folder `vendor` ({GET_KCL})"
        ))
    } else {
        Err(format!("`{text}`: there is no package `{name}`"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_base::model::{package_lock::LockedPackage, stack::RemotePackage};

    #[test]
    fn a_package_is_found_by_the_name_in_its_kcl_mod() {
        let folder = RepoPath::normalize("models").unwrap();
        let setup = CompileSetup {
            packages: vec![("my_models".to_owned(), folder.clone())],
            ..CompileSetup::default()
        };
        for name in ["my-models", "my_models"] {
            let found = package_folder(&setup, &format!("{name}:KCL_MOD"), name);
            assert_eq!(found, Ok(("my_models".to_owned(), folder.clone())));
        }
    }

    #[test]
    fn who_is_told_to_vendor_a_package_is_told_how_to_get_the_command() {
        let setup = CompileSetup {
            remote_packages: vec![RemotePackage {
                name: "models".to_owned(),
                declared: "models".to_owned(),
                requirement: String::new(),
                locked: LockedPackage::default(),
            }],
            ..CompileSetup::default()
        };
        let refusal = package_folder(&setup, "models:KCL_MOD", "${models:KCL_MOD}/a.k").unwrap_err();
        assert!(
            refusal.contains("`kcl mod vendor`") && refusal.contains(GET_KCL),
            "{refusal}"
        );
    }
}
