//! The executable: found on the `PATH` or configured, and recent enough.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    time::Duration,
};

use super::error::TerraformError;
use konverge_base::{
    checkout::{Checkout, Untrusted},
    process::{ProcessError, Program},
};

/// The product. Both products write the same formats of state, plan and log, as far as Konverge uses them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BinaryKind {
    /// HashiCorp Terraform.
    Terraform,
    /// OpenTofu, the fork of Terraform.
    OpenTofu,
}

impl std::fmt::Display for BinaryKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Terraform => "Terraform",
            Self::OpenTofu => "OpenTofu",
        })
    }
}

/// A usable executable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binary {
    /// The path of the file.
    pub path: PathBuf,
    /// The product: Terraform or OpenTofu.
    pub make: BinaryKind,
    /// The version that the executable reports.
    pub version: String,
}

impl Binary {
    /// Finds the executable and queries its version.
    ///
    /// # Errors
    /// The executable does not exist, cannot be run, or is too old: `import` blocks and `terraform_data` need
    /// Terraform 1.5 or OpenTofu 1.6.
    pub async fn find(
        given: Option<&Path>,
        env: &[(OsString, OsString)],
        checkout: &Checkout,
    ) -> Result<Self, TerraformError> {
        let executable = match given {
            Some(given) => checkout.executable("terraform.binary", given),
            None => checkout.find(&["terraform", "tofu"]),
        };
        let executable = executable.map_err(|error| match (error, given) {
            (
                Untrusted::NotFound {
                    passed_over: None, ..
                },
                Some(name),
            ) => TerraformError::NoSuchBinary(name.to_owned()),
            (
                Untrusted::NotFound {
                    passed_over: None, ..
                },
                None,
            ) => TerraformError::NoBinary,
            (other, _) => TerraformError::Untrusted(other),
        })?;
        let path = executable.path().to_owned();
        // The JSON output of `version` does not name the product, so the text is parsed.
        let mut program = Program::new(executable).args(["version"]);
        program.env = Some(env.to_vec());
        program.deadline = Duration::from_secs(60);
        let ended = program.run().await.map_err(|error| match error {
            ProcessError::NotFound(path) => TerraformError::NoSuchBinary(path),
            other => TerraformError::Process(other.into()),
        })?;
        let said = String::from_utf8_lossy(&ended.stdout);
        let (make, version) = said
            .lines()
            .find_map(read_version)
            .ok_or_else(|| TerraformError::Version {
                path: path.clone(),
                found: "no Terraform".to_owned(),
                needed: NEEDED,
            })?;
        let found = Self {
            path,
            make,
            version: version.to_owned(),
        };
        found.check()?;
        Ok(found)
    }

    /// Returns the source of a provider for this executable. OpenTofu has its own registry with the same
    /// names, and rejects locked packages of the other one.
    pub(super) fn source_of(&self, source: &str) -> String {
        match (self.make, source.strip_prefix("registry.terraform.io/")) {
            (BinaryKind::OpenTofu, Some(name)) => format!("registry.opentofu.org/{name}"),
            _ => source.to_owned(),
        }
    }

    fn check(&self) -> Result<(), TerraformError> {
        let mut parts = self
            .version
            .split(['.', '-'])
            .map(|part| part.parse::<u32>().unwrap_or(0));
        let (major, minor) = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
        let least = match self.make {
            BinaryKind::Terraform => 5,
            BinaryKind::OpenTofu => 6,
        };
        if major == 1 && minor >= least {
            return Ok(());
        }
        Err(TerraformError::Version {
            path: self.path.clone(),
            found: format!("{} {}", self.make, self.version),
            needed: NEEDED,
        })
    }
}

const NEEDED: &str = "Terraform 1.5 or newer (below 2), or OpenTofu 1.6 or newer (below 2),";

/// Parses `Terraform v1.11.4` or `OpenTofu v1.10.0`.
fn read_version(line: &str) -> Option<(BinaryKind, &str)> {
    let (name, version) = line.split_once(" v")?;
    let make = match name {
        "Terraform" => BinaryKind::Terraform,
        "OpenTofu" => BinaryKind::OpenTofu,
        _ => return None,
    };
    Some((make, version.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_checked() {
        let check = |make, version: &str| {
            Binary {
                path: "terraform".into(),
                make,
                version: version.to_owned(),
            }
            .check()
            .is_ok()
        };
        for good in ["1.5.0", "1.11.4", "1.12.0-beta1"] {
            assert!(check(BinaryKind::Terraform, good), "{good}");
        }
        for bad in ["1.4.9", "0.15.0", "2.0.0", "odd"] {
            assert!(!check(BinaryKind::Terraform, bad), "{bad}");
        }
        assert!(check(BinaryKind::OpenTofu, "1.6.0") && !check(BinaryKind::OpenTofu, "1.5.7"));
    }

    #[test]
    fn the_two_are_told_apart() {
        assert_eq!(
            read_version("Terraform v1.11.4"),
            Some((BinaryKind::Terraform, "1.11.4"))
        );
        assert_eq!(
            read_version("OpenTofu v1.12.0-rc1"),
            Some((BinaryKind::OpenTofu, "1.12.0-rc1"))
        );
        for other in [
            "on linux_amd64",
            "+ provider registry.terraform.io/hashicorp/local v2.9.0",
            "",
        ] {
            assert_eq!(read_version(other), None, "{other}");
        }
    }

    #[tokio::test]
    async fn what_is_not_terraform_is_refused() {
        let find = async |path| Binary::find(Some(Path::new(path)), &[], &Checkout::default()).await;
        let missing = find("/nonexistent/terraform").await;
        assert!(matches!(missing, Err(TerraformError::NoSuchBinary(_))));
        let other = find("/bin/echo").await;
        assert!(matches!(other, Err(TerraformError::Version { .. })), "{other:?}");
    }
}
