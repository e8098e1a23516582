//! [`Forge`]: the addresses of the repository at its forge. What lies in the store names no host of a link: the forge is
//! known from the default branch, the job, or the clone.

use konverge_base::model::CommitId;
use serde::Serialize;

/// The longest login.
const LONGEST_LOGIN: usize = 64;

/// A repository at GitHub or a server of its kind: `https://HOST/OWNER/NAME`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Forge(String);

impl Forge {
    /// The repository with this address; `None` if it is not one of the form `https://HOST/OWNER/NAME`.
    pub fn from_url(url: &str) -> Option<Self> {
        let repository = url.strip_prefix("https://")?;
        is_repository(repository).then(|| Self(url.to_owned()))
    }

    /// The repository of `portal.workflow`: `https://HOST/OWNER/NAME/actions/workflows/FILE`.
    pub fn from_workflow(page: &str) -> Option<Self> {
        let (repository, _) = page.split_once("/actions/workflows/")?;
        Self::from_url(repository)
    }

    /// The page of a commit.
    pub fn commit(&self, commit: &CommitId) -> String {
        format!("{}/commit/{commit}", self.0)
    }

    /// The page of a pull request.
    pub fn pull_request(&self, number: u64) -> String {
        format!("{}/pull/{number}", self.0)
    }

    /// The page of an issue.
    pub fn issue(&self, number: u64) -> String {
        format!("{}/issues/{number}", self.0)
    }

    /// The page of a run, if it is one of this repository.
    pub fn run<'a>(&self, run: &'a str) -> Option<&'a str> {
        let rest = run
            .strip_prefix(self.0.as_str())?
            .strip_prefix("/actions/runs/")?;
        let (id, attempt) = rest.split_once("/attempts/").unwrap_or((rest, "1"));
        let is_number = |text: &str| text.parse::<u64>().is_ok();
        (is_number(id) && is_number(attempt)).then_some(run)
    }

    /// The page of a person or an App, if the name is a login: any other name is a text.
    pub fn person(&self, name: &str) -> Option<String> {
        let (login, folder) = match name.strip_suffix("[bot]") {
            Some(app) => (app, "apps/"),
            None => (name, ""),
        };
        let host = self.0.strip_prefix("https://")?.split('/').next()?;
        is_login(login).then(|| format!("https://{host}/{folder}{login}"))
    }

    /// The page of who started a run. Outside a run of this repository the name is that of an account of some machine.
    pub fn actor(&self, run: &str, name: &str) -> Option<String> {
        self.run(run).and_then(|_| self.person(name))
    }
}

fn is_login(name: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric();
    (1..=LONGEST_LOGIN).contains(&name.len())
        && name
            .bytes()
            .all(|byte| is_word(byte) || byte == b'-' || byte == b'_')
        && name.bytes().next().is_some_and(is_word)
}

/// `HOST/OWNER/NAME` and the id, of the address of a run.
pub(crate) fn github_run(run: &str) -> Option<(&str, u64)> {
    let (repository, rest) = run.strip_prefix("https://")?.split_once("/actions/runs/")?;
    let id = rest.split('/').next()?.parse().ok()?;
    is_repository(repository).then_some((repository, id))
}

/// Returns true for `HOST/OWNER/NAME`; the host may have a port.
fn is_repository(text: &str) -> bool {
    let is_name = |part: &str| {
        !part.bytes().all(|byte| byte == b'.')
            && part
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    };
    let Some((host, path)) = text.split_once('/') else {
        return false;
    };
    let (host, port) = host.split_once(':').unwrap_or((host, "443"));
    is_name(host)
        && port.parse::<u16>().is_ok()
        && path.split('/').count() == 2
        && path.split('/').all(is_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forge(url: &str) -> Forge {
        Forge::from_url(url).unwrap()
    }

    #[test]
    fn a_link_leads_to_the_repository_and_to_nothing_else() {
        let acme = forge("https://github.com/acme/infra");
        let commit = "a".repeat(40).parse().unwrap();
        assert_eq!(
            acme.commit(&commit),
            format!("https://github.com/acme/infra/commit/{commit}")
        );
        assert_eq!(acme.pull_request(7), "https://github.com/acme/infra/pull/7");
        assert_eq!(acme.issue(8), "https://github.com/acme/infra/issues/8");
        let page = "https://github.com/acme/infra/actions/workflows/konverge.yml";
        assert_eq!(Forge::from_workflow(page), Some(acme));
        for url in [
            "http://github.com/acme/infra",
            "https://github.com/acme",
            "https://github.com/acme/infra/x",
            "https://github.com/acme/..",
            "https://github.com/acme/in\"fra",
            "https://ada@github.com/acme/infra",
            "https://github.com:x/acme/infra",
            "javascript:alert(1)",
        ] {
            assert_eq!(Forge::from_url(url), None, "{url}");
        }
        assert!(Forge::from_url("https://github.example:8443/acme/infra").is_some());
    }

    #[test]
    fn a_run_of_another_place_is_no_link() {
        let acme = forge("https://github.com/acme/infra");
        let run = "https://github.com/acme/infra/actions/runs/7/attempts/2";
        assert_eq!(acme.run(run), Some(run));
        for run in [
            "ada@laptop",
            "https://evil.example/acme/infra/actions/runs/7",
            "https://github.com/acme/infra2/actions/runs/7",
            "https://github.com/acme/infra.evil/actions/runs/7",
            "https://github.com/acme/infra/actions/runs/7/../../x",
            "https://github.com/acme/infra/actions/runs/x",
            "https://github.com/acme/infra/actions/runs/7?x=<b>",
        ] {
            assert_eq!(acme.run(run), None, "{run}");
        }
    }

    #[test]
    fn only_a_login_is_a_link() {
        let forge = forge("https://github.example/a/b");
        assert_eq!(
            forge.person("ada-l").as_deref(),
            Some("https://github.example/ada-l")
        );
        assert_eq!(
            forge.person("ada_corp").as_deref(),
            Some("https://github.example/ada_corp")
        );
        assert_eq!(
            forge.person("renovate[bot]").as_deref(),
            Some("https://github.example/apps/renovate")
        );
        for name in [
            "",
            "[bot]",
            "Ada Lovelace",
            "-ada",
            "ada/../x",
            "ada\u{202e}",
            "ada?x",
            "a@b",
        ] {
            assert_eq!(forge.person(name), None, "{name}");
        }
        assert_eq!(forge.person(&"a".repeat(65)), None);
        assert!(
            forge
                .actor("https://github.example/a/b/actions/runs/7", "ada")
                .is_some()
        );
        assert_eq!(forge.actor("ada@laptop", "ada"), None);
    }
}
