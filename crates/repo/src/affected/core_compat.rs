//! The differences between versions of the KCL core that influence which files a compilation reads.

use konverge_base::model::kcl_modules::SYSTEM_MODULES;

/// The rules of one version of the core.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoreRules {
    version: String,
    /// Since 0.13.0: an import path whose first name is a system module means that module, whatever follows the name.
    pub system_by_first_name: bool,
    /// Since 0.13.2: code can read data files only in the folder of its own file.
    pub reads_own_folder_only: bool,
}

impl CoreRules {
    /// Returns the rules of a version such as `0.13.2`. An invalid version gets the rules under which most files are
    /// read.
    pub fn for_version(version: &str) -> Self {
        let mut numbers = version
            .trim_start_matches('v')
            .split(['.', '-', '+'])
            .map(str::parse::<u32>);
        let mut next = || numbers.next().and_then(Result::ok).unwrap_or_default();
        let number = (next(), next(), next());
        Self {
            version: version.to_owned(),
            system_by_first_name: number >= (0, 13, 0),
            reads_own_folder_only: number >= (0, 13, 2),
        }
    }

    /// Returns the version of the core.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Returns true if an absolute import names a system module, so that no file is loaded for it.
    pub fn is_system(&self, path: &str) -> bool {
        let name = if self.system_by_first_name {
            path.split('.').next().unwrap_or_default()
        } else {
            path
        };
        SYSTEM_MODULES.contains(&name)
    }
}

/// Returns true if the module lets KCL code read files while it is evaluated.
pub(super) fn reads_files(first_name: &str) -> bool {
    matches!(first_name, "file" | "crypto")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_differ() {
        assert!(CoreRules::for_version("0.13.2").is_system("math.x"));
        assert!(!CoreRules::for_version("v0.12.5").is_system("math.x"));
        assert!(CoreRules::for_version("v0.12.5").is_system("math"));
        assert!(CoreRules::for_version("0.13.2").reads_own_folder_only);
        assert!(!CoreRules::for_version("0.13.0").reads_own_folder_only);
        assert!(!CoreRules::for_version("nightly").reads_own_folder_only);
    }
}
