//! Kusion's older state backends besides files and object stores: its HTTP backend and a MySQL table. Both
//! are only read.

use bytes::Bytes;
use reqwest::StatusCode;
use url::Url;

pub use super::kusion_query::KusionQuery;

use super::{
    Key, StoreError, StoreOptions,
    http_client::HttpClient,
    location::{StoreLocation, not_a_url},
    sql,
};
use konverge_base::secrets::{AddressParts, AddressQuery, credential_in};

/// Reads a state from Kusion's HTTP backend. The address is `urlPrefix` plus `getLatestURLFormat`, whose `%s`
/// stand for tenant, project, stack and cluster in this order. An address without `%s` is used unchanged.
/// `None` if there is no such state.
///
/// # Errors
/// The address is clear-text HTTP to another machine, or the response is neither 200 nor 404.
pub async fn over_http(
    format: &str,
    query: &KusionQuery,
    options: &StoreOptions,
) -> Result<Option<Bytes>, StoreError> {
    let names = [&query.tenant, &query.project, &query.stack, &query.cluster];
    let mut address = String::new();
    let mut names = names.into_iter();
    for (n, part) in format.split("%s").enumerate() {
        if n > 0 {
            let name = names.next().map_or("", String::as_str);
            address.extend(
                url::form_urlencoded::byte_serialize(name.as_bytes()).map(|part| part.replace('+', "%20")),
            );
        }
        address.push_str(part);
    }
    // The query is part of the server's address, and does not hold the options of a store.
    let bare = address.split('?').next().unwrap_or_default();
    let place = StoreLocation::parse(bare, options)?;
    let allowed = AddressParts {
        user: false,
        query: AddressQuery::OfServer,
    };
    if let Some(credential) = credential_in(format, allowed) {
        return Err(place.error(format!("it holds {credential}; an address holds no credentials")));
    }
    if !place.is_loopback() {
        place.check_transport(bare)?;
    }
    let url = Url::parse(&address).map_err(|error| place.error(not_a_url(error)))?;
    // As in Kusion, no credentials are sent. Those in the environment belong to Konverge's own store.
    let requests = HttpClient::new(&place)?;
    let key = Key::from_listing("");
    let answer = requests.send(&key, |client| client.get(url.clone())).await?;
    match answer.status {
        StatusCode::OK => Ok(Some(answer.body)),
        StatusCode::NOT_FOUND => Ok(None),
        _ => Err(requests.status_error(&key, &answer)),
    }
}

/// Reads the newest row of Kusion's table `state` in `mysql://USER@HOST/DATABASE`, as the JSON document that
/// its other backends store. `None` if there is no such state.
///
/// # Errors
/// The database cannot be reached or does not respond in time, or states of several clusters match.
pub async fn in_mysql(
    url: &str,
    query: &KusionQuery,
    options: &StoreOptions,
) -> Result<Option<Bytes>, StoreError> {
    let place = StoreLocation::parse(url, options)?;
    let database = place.prefix.clone();
    if database.is_empty() || database.contains('/') {
        return Err(place.error("it names no database, as in mysql://user@host/database"));
    }
    sql::newest_kusion_state(&place, &database, query).await
}
