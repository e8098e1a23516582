//! A browser that keeps cookies and follows nothing by itself, and a portal that is served behind a login.

use std::{collections::BTreeMap, path::Path};

use reqwest::{Client, Method, Response, StatusCode};

use super::recorded::RecordedStacks;
use crate::support::{openid::OpenIdProvider, portal_server::PortalServer, process::binary};

/// The key of the cookies of every replica.
pub const KEY: &str = "0123456789abcdef0123456789abcdef";

/// Cookies by host and port.
pub struct Visitor {
    client: Client,
    pub cookies: BTreeMap<(String, String), String>,
}

/// An answer with its text.
pub struct Seen {
    pub status: StatusCode,
    pub location: Option<String>,
    pub text: String,
}

impl Visitor {
    pub fn new() -> Self {
        let client = Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .build();
        Self {
            client: client.unwrap(),
            cookies: BTreeMap::new(),
        }
    }

    pub async fn send(
        &mut self,
        method: Method,
        url: &str,
        headers: &[(&str, &str)],
        body: Option<String>,
    ) -> Seen {
        let url: reqwest::Url = url.parse().unwrap();
        let host = format!("{}:{}", url.host_str().unwrap(), url.port().unwrap());
        let own = self.cookies.iter().filter(|((of, _), _)| *of == host);
        let sent: Vec<_> = own.map(|((_, name), value)| format!("{name}={value}")).collect();
        let mut request = self.client.request(method, url.clone());
        if !sent.is_empty() {
            request = request.header("cookie", sent.join("; "));
        }
        if let Some(body) = body {
            request = request
                .header("content-type", "application/x-www-form-urlencoded")
                .body(body);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer: Response = request.send().await.unwrap();
        for cookie in answer.headers().get_all("set-cookie") {
            let cookie = cookie.to_str().unwrap();
            let (name, value) = cookie.split(';').next().unwrap().split_once('=').unwrap();
            let place = (host.clone(), name.to_owned());
            if cookie.contains("Max-Age=0") || value.is_empty() {
                self.cookies.remove(&place)
            } else {
                self.cookies.insert(place, value.to_owned())
            };
        }
        let location = answer.headers().get("location");
        let location = location.map(|to| url.join(to.to_str().unwrap()).unwrap().to_string());
        Seen {
            status: answer.status(),
            location,
            text: answer.text().await.unwrap(),
        }
    }

    pub async fn get(&mut self, url: &str) -> Seen {
        self.send(Method::GET, url, &[], None).await
    }

    /// Goes from a page of the portal to the provider, signs in there, and comes back to the first page that is shown.
    pub async fn sign_in(&mut self, url: &str, name: &str) -> Seen {
        let back = self.way_back(url, name).await;
        let mut seen = self.get(&back).await;
        while let Some(to) = seen.location.take() {
            seen = self.get(&to).await;
        }
        seen
    }

    /// The address by which the provider comes back, which nobody has used.
    pub async fn way_back(&mut self, url: &str, name: &str) -> String {
        let mut to = url.to_owned();
        for _ in 0..20 {
            let seen = self.get(&to).await;
            to = match (
                seen.location,
                seen.text.contains("name=\"prompt\" value=\"login\""),
            ) {
                (Some(to), _) if to.contains("/login/callback?") => return to,
                (Some(to), _) => to,
                (None, is_login) => {
                    let body = if is_login {
                        format!("prompt=login&login={name}&password=x")
                    } else {
                        "prompt=consent".to_owned()
                    };
                    let sent = self.send(Method::POST, &to, &[], Some(body)).await;
                    sent.location.unwrap_or_else(|| panic!("{to}: {}", sent.text))
                }
            };
        }
        panic!("the sign-in does not end");
    }
}

/// A process of `konverge serve`.
pub struct Served {
    _server: PortalServer,
    pub root: String,
}

impl Served {
    /// Writes the configuration on the default branch.
    pub fn configure(recorded: &RecordedStacks, provider: &OpenIdProvider, portal: &str) {
        let url = format!("file://{}", recorded.folder.path().join("states").display());
        let login = format!(
            "{{issuer: '{}', client_id: portal, url: 'http://{}', scopes: [profile, groups]}}",
            provider.issuer(),
            provider.portal()
        );
        recorded.repository.write(
            "konverge.yaml",
            format!(
                "version: 1\nstate: {{url: '{url}', id: {}}}\nportal:\n  login: {login}\n  workflow: 'https://github.com/acme/infra/actions/workflows/konverge.yml'\n{portal}",
                super::recorded::ID
            ),
        );
        recorded.repository.commit("the portal");
    }

    /// Starts one with no variable but these.
    pub fn start(recorded: &RecordedStacks, address: &str, key: Option<&str>) -> Self {
        let (folder, home) = (recorded.repository.path(), recorded.folder.path());
        Self::start_in(folder, home, address, key, &[])
    }

    /// Starts one in a checkout, with the variables of its store.
    pub fn start_in(
        folder: &Path,
        home: &Path,
        address: &str,
        key: Option<&str>,
        env: &[(&str, &str)],
    ) -> Self {
        let key = key.map(|key| ("KONVERGE_PORTAL_KEY", key));
        let env: Vec<_> = env.iter().copied().chain(key).collect();
        let server = PortalServer::start(&binary(), folder, home, address, &env);
        Self {
            root: server.root.clone(),
            _server: server,
        }
    }
}

/// The token of the forms on a page.
pub fn csrf(page: &str) -> String {
    let (_, rest) = page
        .split_once("name=\"csrf\" value=\"")
        .unwrap_or_else(|| panic!("{page}"));
    rest.split('"').next().unwrap().to_owned()
}
