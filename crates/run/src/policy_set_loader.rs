//! Reads the policy sets of a revision. In `ci` these are the default branch, and the revision under which a pull
//! request was reviewed.

use konverge_base::{
    error::chain,
    model::{
        RepoPath,
        file_source::{FileKind, Source},
    },
};
use konverge_config::{Config, PolicyLanguage, PolicySetConfig};
use konverge_policy_sets::{PolicyFile, PolicySet, PolicySets};

/// Loads the sets of a configuration from the files of a revision. A set that cannot be read denies every plan, with
/// the reason.
pub fn load(config: &Config, source: &dyn Source) -> PolicySets {
    let sets = config.policy.sets.iter().map(|set| load_set(set, source));
    PolicySets::new(sets.collect(), &config.policy.exceptions).ending_names(&config.policy.ended_names)
}

fn load_set(set: &PolicySetConfig, source: &dyn Source) -> PolicySet {
    let endings: &[&str] = match set.language {
        PolicyLanguage::Rego => &[".rego"],
        PolicyLanguage::Vap | PolicyLanguage::Gatekeeper => &[".yaml", ".yml"],
    };
    match read(set, source, endings) {
        Ok((files, data)) => PolicySet::load(set, &files, &data),
        Err(why) => PolicySet::broken(set, why),
    }
}

type Files = Vec<PolicyFile>;

fn read(set: &PolicySetConfig, source: &dyn Source, endings: &[&str]) -> Result<(Files, Files), String> {
    let files = files_at(source, &set.path, endings)?;
    if files.is_empty() {
        return Err(format!(
            "no rule file (`{}`) was found at `{}`",
            endings.join("`, `"),
            set.path
        ));
    }
    let mut data = Vec::new();
    for path in &set.data {
        let found = files_at(source, path, &[".json", ".yaml", ".yml"])?;
        if found.is_empty() {
            return Err(format!("there is no data at `{path}`"));
        }
        data.extend(found);
    }
    Ok((files, data))
}

/// Returns the file at a path, or all files below a folder. Links are not followed.
fn files_at(source: &dyn Source, path: &str, endings: &[&str]) -> Result<Files, String> {
    let Some(path) = RepoPath::normalize(path) else {
        return Err(format!("`{path}` is not a path of the repository"));
    };
    let is_meant = |found: &RepoPath| {
        (*found == path || found.is_within(&path))
            && endings.iter().any(|ending| found.as_str().ends_with(ending))
    };
    let mut files = Vec::new();
    for (found, entry) in source.files() {
        if !is_meant(found) {
            continue;
        }
        // A rule behind a link would be skipped, and what the rule denies would pass. So a link is an error.
        if entry.kind != FileKind::File {
            return Err(format!("{found} is a link: write the file itself"));
        }
        let bytes = source.read(entry.blob).map_err(|error| chain(&error))?;
        let text = String::from_utf8(bytes.to_vec()).map_err(|_| format!("{found} is not UTF-8"))?;
        files.push(PolicyFile {
            path: found.to_string(),
            text,
        });
    }
    Ok(files)
}
