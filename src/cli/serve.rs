//! `konverge serve`: the pages of the portal and their JSON, from the store.

use std::{net::SocketAddr, path::PathBuf};

use super::CliContext;
use crate::ops::portal::{ServedConfig, StorePortal};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::note::Note,
};
use konverge_config::{Config, PortalLogin, ProxyRange};
use konverge_run::{KeyUse, RunContext, StateBackend, state, state_backend};
use konverge_serve::{LoginSettings, PORTAL_KEY_VARIABLE, Portal, listen};

/// Arguments of `konverge serve`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  konverge serve                           http://127.0.0.1:8080
  konverge serve --listen 127.0.0.1:9000   another port

Without `portal.login` on the default branch only addresses of this machine are accepted. The process reads the store of
`state.url`, and with a login it writes its audit, ends leases and freezes applies there. It needs no credential of GitHub,
of a cluster or of a cloud. Run it in a checkout to see which changes are pending.")]
pub struct Args {
    /// The address and port; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// A konverge.yaml to obey instead of the default branch's, where there is no checkout
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    config: Option<PathBuf>,
}

/// Runs the command until it is asked to stop.
///
/// # Errors
/// There is no state; the address is in use, or is not of this machine and there is no login.
pub(super) async fn run(args: &Args, context: &CliContext) -> Result<u8, UserError> {
    let run = context.run();
    let file = args.config.as_ref().map(|file| context.current_dir.join(file));
    let served = ServedConfig::open(&run, file)?;
    let login = served
        .as_ref()
        .and_then(|(_, config)| config.portal.login.clone());
    // Without a login, everybody who reaches the port sees every stack.
    if login.is_none() && !args.listen.ip().is_loopback() {
        return Err(UserError::new(
            ErrorKind::Usage,
            format!(
                "{} is not an address of this machine only, and there is no login",
                args.listen.ip()
            ),
        )
        .hint(
            "set `portal.login` in konverge.yaml on the default branch, or use `--listen 127.0.0.1:8080`",
        ));
    }
    let backend = open_states(
        args,
        &run,
        served.as_ref().map(|(_, config)| config),
        login.is_some(),
    )
    .await?;
    run.begin_writes()?;
    let stop = run.cancel.clone();
    let portal = match login {
        None => {
            let served = served.map(|(served, _)| served);
            Portal::new(Box::new(StorePortal::new(run, backend, served)))
        }
        Some(login) => {
            let proxies = served
                .as_ref()
                .map(|(_, config)| config.portal.trusted_proxies.clone());
            let settings = settings(&run, login, proxies.unwrap_or_default(), context)?;
            let served = served.map(|(served, _)| served);
            let portal = StorePortal::new(run, backend, served);
            Portal::with_login(Box::new(portal.clone()), Box::new(portal), settings)?
        }
    };
    let listener = listen(args.listen).await?;
    let address = listener.local_addr().map_err(konverge_serve::ListenError::from)?;
    context.print(&format!("http://{address}\n"));
    portal.serve(listener, stop).await?;
    Ok(0)
}

/// Opens the states with the configuration that grants the roles; without a login with the configuration of the
/// checkout.
async fn open_states(
    args: &Args,
    run: &RunContext,
    config: Option<&Config>,
    has_login: bool,
) -> Result<StateBackend, UserError> {
    match config.filter(|_| has_login || args.config.is_some()) {
        Some(config) => {
            let repository = konverge_repo::git::Repository::discover(&run.dir).ok();
            let repository = repository.as_ref().filter(|_| args.config.is_none());
            state_backend::open(run, config, repository, KeyUse::Look).await
        }
        None => Ok(state::open(run, KeyUse::Look).await?.0),
    }
}

fn settings(
    run: &RunContext,
    login: PortalLogin,
    trusted_proxies: Vec<ProxyRange>,
    context: &CliContext,
) -> Result<LoginSettings, UserError> {
    let client_secret = match &login.client_secret_env {
        None => None,
        Some(name) => Some(run.var(name).map(str::to_owned).ok_or_else(|| {
            UserError::new(
                ErrorKind::Config,
                format!("portal.login.client_secret_env names {name}, which is not set"),
            )
            .hint("set it to the secret that the login provider gave to the portal")
        })?),
    };
    let cookie_key = run.var(PORTAL_KEY_VARIABLE).map(str::to_owned);
    if cookie_key.is_none() {
        context.say(&Note::remark(format_args!(
            "{PORTAL_KEY_VARIABLE} is not set: sessions end with this process, and another replica does not know them"
        )));
    }
    Ok(LoginSettings {
        login,
        client_secret,
        cookie_key,
        trusted_proxies,
    })
}
