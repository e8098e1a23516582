//! The executable: found on the `PATH` or configured, and recent enough.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    time::Duration,
};

use super::error::{TerraformError, caused_by};
use konverge_base::{
    checkout::{Checkout, Untrusted},
    error::{ErrorKind, UserError},
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
        let executable = executable.map_err(|error| match error {
            Untrusted::NotFound {
                passed_over: None, ..
            } => missing(given),
            other => UserError {
                kind: ErrorKind::Terraform,
                ..other.into()
            },
        })?;
        let path = executable.path().to_owned();
        // The JSON output of `version` does not name the product, so the text is parsed.
        let mut program = Program::new(executable).args(["version"]);
        program.env = Some(env.to_vec());
        program.deadline = Duration::from_secs(60);
        let ended = program.run().await.map_err(|error| match error {
            ProcessError::NotFound(path) => missing(Some(&path)),
            other => caused_by(other, NOT_RUN),
        })?;
        let said = String::from_utf8_lossy(&ended.stdout);
        let (make, version) = said
            .lines()
            .find_map(read_version)
            .ok_or_else(|| other_version(&path, "no Terraform", NEEDED))?;
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
        Err(self.too_old(NEEDED))
    }

    /// Returns the error of an executable that has not the `needed` version.
    pub(super) fn too_old(&self, needed: &str) -> TerraformError {
        other_version(&self.path, &format!("{} {}", self.make, self.version), needed).into()
    }
}

/// The error of an executable that could not be run, before its cause.
pub(super) const NOT_RUN: &str = "Terraform could not be run";

fn missing(given: Option<&Path>) -> UserError {
    let what = match given {
        Some(path) => format!("the Terraform executable `{}` does not exist", path.display()),
        None => "neither `terraform` nor `tofu` is on the PATH".to_owned(),
    };
    UserError::new(ErrorKind::Terraform, what).hint(
        "install Terraform 1.5 or newer, or OpenTofu, or set `terraform.binary` in konverge.yaml to where it is",
    )
}

fn other_version(path: &Path, found: &str, needed: &str) -> UserError {
    let what = format!("`{}` is {found}, but {needed} is required", path.display());
    UserError::new(ErrorKind::Terraform, what)
        .hint("install a newer version, or set `terraform.binary` in konverge.yaml to a newer one")
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
        let message = missing.unwrap_err().to_string();
        assert!(
            message.ends_with("`/nonexistent/terraform` does not exist"),
            "{message}"
        );
        let message = find("/bin/echo").await.unwrap_err().to_string();
        assert!(message.contains("is no Terraform, but"), "{message}");
    }
}
