//! Opens a store by its URL.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use url::Url;

use super::{
    Store, StoreError, cloud, filesystem, http, interruptible::Interruptible, location::StoreLocation,
    options::StoreOptions, oss, sql,
};
use konverge_base::{error::SharedError, interrupt::Interrupt};

/// Opens the store of a URL: a plain path or `file://`, `s3://BUCKET/PREFIX`, `gs://BUCKET/PREFIX`,
/// `az://CONTAINER/PREFIX`, `oss://BUCKET/PREFIX`, `postgres://USER@HOST/DATABASE/PREFIX`, `mysql://…`,
/// `https://HOST/PREFIX`. The query may set `endpoint`, `region`, `path_style`, `allow_http` and `ca_file`.
///
/// Sends no request to the store; [`super::probe`] does.
///
/// # Errors
/// [`StoreError::Config`]: an unknown scheme or query key, a password in the URL, a folder that cannot be
/// created.
pub async fn open(url: &str, options: &StoreOptions) -> Result<Arc<dyn Store>, StoreError> {
    let store = open_scheme(url, options).await?;
    let interrupt = Interrupt::new(options.cancel.clone());
    Ok(Arc::new(Interruptible { store, interrupt }))
}

/// Opens a store of another program like [`open`], but keeps the permissions of existing folders and files.
///
/// # Errors
/// Errors of [`open`].
pub async fn open_foreign(url: &str, options: &StoreOptions) -> Result<Arc<dyn Store>, StoreError> {
    let folder = match url.split_once("://") {
        None => Some(PathBuf::from(url)),
        Some(("file", rest)) => Some(file_path(url, rest)?),
        Some(_) => None,
    };
    let Some(folder) = folder else {
        return open(url, options).await;
    };
    check_trust(&folder, options)?;
    let interrupt = Interrupt::new(options.cancel.clone());
    let store = cloud::folder(&folder, options)?;
    Ok(Arc::new(Interruptible { store, interrupt }))
}

async fn open_scheme(url: &str, options: &StoreOptions) -> Result<Arc<dyn Store>, StoreError> {
    let Some((scheme, rest)) = url.split_once("://") else {
        return trusted_folder(url.into(), options);
    };
    if scheme == "file" {
        return trusted_folder(file_path(url, rest)?, options);
    }
    let place = StoreLocation::parse(url, options)?;
    if let Some(file) = &place.options.ca_file {
        let trusted = options.checkout.trust("state.options.ca_file", file.as_ref());
        trusted.map_err(|error| place.error(error))?;
    }
    match scheme {
        "s3" => cloud::s3(&place),
        "gs" => cloud::gs(&place),
        "az" => cloud::az(&place),
        "oss" => oss::oss(&place),
        "postgres" | "mysql" => sql::sql(&place, scheme),
        "http" | "https" => http::http(&place),
        _ => Err(place.error(format!(
            "unknown scheme `{scheme}`; known are file, s3, gs, az, oss, postgres, mysql, https"
        ))),
    }
}

/// Opens a store in a folder, which must be outside the checkout.
fn trusted_folder(path: PathBuf, options: &StoreOptions) -> Result<Arc<dyn Store>, StoreError> {
    check_trust(&path, options)?;
    filesystem::folder(path, options)
}

fn check_trust(path: &Path, options: &StoreOptions) -> Result<(), StoreError> {
    let config = |why: SharedError| StoreError::Config {
        url: format!("file://{}", path.display().to_string().escape_debug()),
        why,
    };
    let absolute = std::path::absolute(path).map_err(|error| config(error.into()))?;
    let trusted = options.checkout.trust("the folder of the states", &absolute);
    trusted.map_err(|error| config(error.into()))?;
    Ok(())
}

fn file_path(url: &str, rest: &str) -> Result<PathBuf, StoreError> {
    let config = |why: &str| StoreError::Config {
        url: url.to_owned(),
        why: why.into(),
    };
    if !rest.starts_with('/') {
        return Err(config(
            "a file URL has three slashes, as in file:///var/lib/konverge; or give a plain path",
        ));
    }
    Url::parse(url)
        .ok()
        .and_then(|parsed| parsed.to_file_path().ok())
        .ok_or_else(|| config("it is not a path of this machine"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use konverge_base::error::chain;

    use super::*;

    fn options() -> StoreOptions {
        StoreOptions {
            environment: BTreeMap::new(),
            ..StoreOptions::default()
        }
    }

    async fn refusal(url: &str) -> String {
        match open(url, &options()).await {
            Ok(_) => panic!("{url} was accepted"),
            Err(error) => chain(&error),
        }
    }

    #[tokio::test]
    async fn wrong_urls_are_refused_without_showing_a_password() {
        let with_password = refusal("s3://me:hunter222@bucket/x").await;
        assert!(
            with_password.contains("s3://bucket/x") && !with_password.contains("hunter222"),
            "{with_password}"
        );
        assert!(refusal("ftp://x/y").await.contains("unknown scheme"));
        assert!(
            refusal("s3://bucket?regoin=x")
                .await
                .contains("known are endpoint")
        );
        for value in ["yes", "1", "True", ""] {
            let slip = refusal(&format!("s3://bucket?allow_http={value}")).await;
            assert!(slip.contains("`allow_http` must be `true` or `false`"), "{slip}");
        }
        assert!(refusal("s3:///x").await.contains("no bucket"));
        assert!(refusal("file://relative/x").await.contains("three slashes"));
    }

    #[tokio::test]
    async fn clear_text_is_for_this_machine_alone() {
        assert!(
            refusal("s3://b?endpoint=http://10.0.0.1:9000&allow_http=true")
                .await
                .contains("not https")
        );
        assert!(
            refusal("s3://b?endpoint=http://127.0.0.1:9000")
                .await
                .contains("allow_http")
        );
        assert!(
            open(
                "s3://b?endpoint=http://127.0.0.1:9000&allow_http=true",
                &options()
            )
            .await
            .is_ok()
        );
    }
}
