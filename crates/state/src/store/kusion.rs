//! Kusion's older state backends that are neither files nor objects: its HTTP URL formats and a MySQL table.
//! Read only.

use bytes::Bytes;
use reqwest::StatusCode;
use serde_json::{Value, json};
use sqlx::{Connection, MySqlConnection, Row};
use url::Url;

use super::{Key, StoreError, StoreOptions, http_client::HttpClient, location::StoreLocation, sql};
use konverge_base::{
    error::chain,
    secrets::{AddressParts, AddressQuery, credential_in},
};

/// The key of a state, in Kusion's terms. Empty fields are not part of the query.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KusionQuery {
    /// Tenant of the releases.
    pub tenant: String,
    /// Name of the project.
    pub project: String,
    /// Name of the stack.
    pub stack: String,
    /// The cluster, by which v0.9 separated states.
    pub cluster: String,
}

/// The answer of Kusion's HTTP backend. The address is `urlPrefix` plus `getLatestURLFormat`, whose `%s`
/// stand for tenant, project, stack and cluster in this order. An address without `%s` is used unchanged.
/// `None` if there is no such state.
///
/// # Errors
/// Clear-text HTTP to another machine; an answer that is neither 200 nor 404.
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
    // The query belongs to the server here, not to the options of a store.
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
    let url = Url::parse(&address).map_err(|error| place.error(format!("not a URL: {error}")))?;
    // Without credentials, as Kusion did: this server must not get those of our own store.
    let requests = HttpClient::new(&place)?;
    let key = Key::from_listing("");
    let answer = requests.send(&key, |client| client.get(url.clone())).await?;
    match answer.status {
        StatusCode::OK => Ok(Some(answer.body)),
        StatusCode::NOT_FOUND => Ok(None),
        _ => Err(requests.status_error(&key, &answer)),
    }
}

/// The newest row of Kusion's table `state` in `mysql://USER@HOST/DATABASE`, as the JSON document that its
/// other backends store. `None` if there is no such state.
///
/// # Errors
/// The database cannot be reached or does not answer in time; states of several clusters match.
pub async fn in_mysql(
    url: &str,
    query: &KusionQuery,
    options: &StoreOptions,
) -> Result<Option<Bytes>, StoreError> {
    let place = StoreLocation::parse(url, options)?;
    let database = place.prefix.clone();
    if database.is_empty() || database.contains('/') {
        return Err(place.error("it names no database, as in mysql://user@host/database".to_owned()));
    }
    let failed = |error: sqlx::Error| sql::connect_error(&place.shown, "state", &error);
    let options = sql::mysql_options(&place, &database);
    let mut connection = sql::mysql_connection(&options).await.map_err(failed)?;
    let asked = sql::with_timeout(sql::DEADLINE, async {
        Ok(newest_row(&mut connection, query, &place).await)
    });
    let asked = asked.await.map_err(failed)?;
    // The query is answered; an error at closing does not matter.
    let _ = connection.close().await;
    asked
}

async fn newest_row(
    connection: &mut MySqlConnection,
    query: &KusionQuery,
    place: &StoreLocation,
) -> Result<Option<Bytes>, StoreError> {
    let failed = |error: sqlx::Error| sql::connect_error(&place.shown, "state", &error);
    // Casts, because a column may have any type of text or number.
    let clusters: Vec<String> = sqlx::query_scalar(
        "SELECT DISTINCT CAST(COALESCE(cluster, '') AS CHAR) FROM state
         WHERE project = ? AND stack = ? AND (? = '' OR tenant = ?) AND (? = '' OR cluster = ?)",
    )
    .bind(&query.project)
    .bind(&query.stack)
    .bind(&query.tenant)
    .bind(&query.tenant)
    .bind(&query.cluster)
    .bind(&query.cluster)
    .fetch_all(&mut *connection)
    .await
    .map_err(failed)?;
    if clusters.len() > 1 {
        return Err(place.error(format!(
            "states of several clusters are kept for that stack: {}; name one: `--cluster NAME`",
            clusters.join(", ").escape_debug()
        )));
    }
    let row = sqlx::query(
        "SELECT CAST(COALESCE(tenant, '') AS CHAR), CAST(serial AS UNSIGNED), CAST(resources AS CHAR) FROM state
         WHERE project = ? AND stack = ? AND (? = '' OR tenant = ?) AND (? = '' OR cluster = ?)
         ORDER BY serial DESC LIMIT 1",
    )
    .bind(&query.project)
    .bind(&query.stack)
    .bind(&query.tenant)
    .bind(&query.tenant)
    .bind(&query.cluster)
    .bind(&query.cluster)
    .fetch_optional(&mut *connection)
    .await
    .map_err(failed)?;
    let Some(row) = row else { return Ok(None) };
    let tenant: String = row.try_get(0).map_err(failed)?;
    let serial: u64 = row.try_get(1).map_err(failed)?;
    let resources: Option<String> = row.try_get(2).map_err(failed)?;
    let resources: Value = match resources.as_deref().map(str::trim) {
        None | Some("") => Value::Null,
        Some(text) => serde_json::from_str(text).map_err(|error| {
            place.error(format!(
                "serial {serial}: its resources are not valid JSON: {}",
                chain(&error)
            ))
        })?,
    };
    let document = json!({
        "tenant": tenant, "project": query.project, "stack": query.stack, "serial": serial, "resources": resources,
    });
    Ok(Some(document.to_string().into()))
}
