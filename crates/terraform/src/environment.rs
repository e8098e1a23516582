//! The environment of Terraform processes. Konverge's own environment is not inherited: a provider sees cloud
//! credentials and network settings, but no GitHub token and no key of the state.

use std::{
    ffi::{OsStr, OsString},
    path::Path,
};

use konverge_base::variables;
use konverge_secrets::is_passed;

/// Terraform and its providers run briefly, and garbage collection takes a quarter of their time on small
/// modules. A larger `GOGC` delays it, and `GOMEMLIMIT` keeps several processes from filling the memory of a
/// runner.
const COLLECTS_RARELY: [(&str, &str); 2] = [("GOGC", "400"), ("GOMEMLIMIT", "1GiB")];

/// Returns the whole environment of a Terraform process: the allowed variables of `ours`, then the configured
/// ones in `given`, and `search_path` as `PATH`. Logging, input and update checks are off. `home` is an empty
/// folder, so that no configuration of the user applies.
pub(super) fn compose(
    ours: impl IntoIterator<Item = (OsString, OsString)>,
    given: &[(OsString, OsString)],
    search_path: &OsStr,
    home: &Path,
) -> Vec<(OsString, OsString)> {
    let mut env: Vec<_> = ours
        .into_iter()
        .filter(|(name, _)| name.to_str().is_some_and(is_passed))
        .collect();
    env.extend(given.iter().cloned());
    for (name, value) in COLLECTS_RARELY {
        if !env.iter().any(|(other, _)| other == name) {
            env.push((name.into(), value.into()));
        }
    }
    let home_text = home.as_os_str();
    for (name, value) in [
        (variables::PATH, search_path.to_owned()),
        (variables::HOME, home_text.to_owned()),
        ("TMPDIR", home_text.to_owned()),
        ("TF_CLI_CONFIG_FILE", home.join("terraform.rc").into_os_string()),
        ("TF_LOG", "off".into()),
        ("TF_IN_AUTOMATION", "1".into()),
        ("TF_INPUT", "0".into()),
        ("CHECKPOINT_DISABLE", "1".into()),
    ] {
        set(&mut env, name, value);
    }
    env
}

/// Sets a variable, replacing an earlier value.
pub(super) fn set(env: &mut Vec<(OsString, OsString)>, name: &str, value: impl Into<OsString>) {
    env.retain(|(other, _)| other != name);
    env.push((name.into(), value.into()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_listed_passes() {
        let pair = |name: &str| (OsString::from(name), OsString::from("x"));
        let ours = [
            "PATH",
            "AWS_ACCESS_KEY_ID",
            "GITHUB_TOKEN",
            "KONVERGE_AGE_KEY",
            "TF_LOG",
            "TF_VAR_a",
            "TF_CLI_ARGS",
            "HOME",
        ]
        .map(pair);
        let given = ["EXTRA", "TF_LOG", "GOGC"].map(pair);
        let env = compose(ours, &given, OsStr::new("/usr/bin"), Path::new("/scratch"));
        let names: Vec<_> = env.iter().filter_map(|(name, _)| name.to_str()).collect();
        for present in ["PATH", "AWS_ACCESS_KEY_ID", "EXTRA", "HOME"] {
            assert!(names.contains(&present), "{present}");
        }
        for absent in ["GITHUB_TOKEN", "KONVERGE_AGE_KEY", "TF_VAR_a", "TF_CLI_ARGS"] {
            assert!(!names.contains(&absent), "{absent}");
        }
        let log: Vec<_> = env.iter().filter(|(name, _)| name == "TF_LOG").collect();
        assert_eq!(log.len(), 1);
        assert_eq!(log[0].1, "off");
        let collects: Vec<_> = env.iter().filter(|(name, _)| name == "GOGC").collect();
        assert_eq!(collects, [&pair("GOGC")], "what is given holds");
        assert!(names.contains(&"GOMEMLIMIT"));
    }
}
