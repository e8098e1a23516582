//! Reads the table `state` of Kusion's older MySQL backend.

use bytes::Bytes;
use serde_json::{Value, json};
use sqlx::{Connection, MySqlConnection, Row};

use super::{
    super::{StoreError, kusion_query::KusionQuery, location::StoreLocation},
    DEADLINE, connect_error, mysql_connection, mysql_options, with_timeout,
};
use konverge_base::error::SharedError;

/// Reads the newest row of a stack as the JSON document that Kusion's other backends store. `None` if there
/// is no such row.
///
/// # Errors
/// The database cannot be reached or does not respond in time, or states of several clusters match.
pub(in crate::store) async fn newest_kusion_state(
    place: &StoreLocation,
    database: &str,
    query: &KusionQuery,
) -> Result<Option<Bytes>, StoreError> {
    let failed = |error: sqlx::Error| connect_error(&place.shown, "state", error);
    let options = mysql_options(place, database);
    let mut connection = mysql_connection(&options).await.map_err(failed)?;
    let asked = with_timeout(DEADLINE, async {
        Ok(newest_row(&mut connection, query, place).await)
    });
    let asked = asked.await.map_err(failed)?;
    // The result of the query is complete, so an error when closing the connection is ignored.
    let _ = connection.close().await;
    asked
}

async fn newest_row(
    connection: &mut MySqlConnection,
    query: &KusionQuery,
    place: &StoreLocation,
) -> Result<Option<Bytes>, StoreError> {
    let failed = |error: sqlx::Error| connect_error(&place.shown, "state", error);
    let KusionQuery {
        tenant,
        project,
        stack,
        cluster,
    } = query;
    let values = [project, stack, tenant, tenant, cluster, cluster];
    // Values are cast, because the columns may have any type of text or number.
    let clusters = sqlx::query_scalar(
        "SELECT DISTINCT CAST(COALESCE(cluster, '') AS CHAR) FROM state
         WHERE project = ? AND stack = ? AND (? = '' OR tenant = ?) AND (? = '' OR cluster = ?)",
    );
    let clusters = values
        .into_iter()
        .fold(clusters, |query, value| query.bind(value));
    let clusters: Vec<String> = clusters.fetch_all(&mut *connection).await.map_err(failed)?;
    // Each cluster has its own serials, so the highest serial of several clusters means nothing.
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
    );
    let row = values.into_iter().fold(row, |query, value| query.bind(value));
    let row = row.fetch_optional(&mut *connection).await.map_err(failed)?;
    let Some(row) = row else { return Ok(None) };
    let tenant: String = row.try_get(0).map_err(failed)?;
    let serial: u64 = row.try_get(1).map_err(failed)?;
    let resources: Option<String> = row.try_get(2).map_err(failed)?;
    let resources: Value = match resources.as_deref().map(str::trim) {
        None | Some("") => Value::Null,
        Some(text) => serde_json::from_str(text).map_err(|error| {
            place.error(
                SharedError::from(error)
                    .context(format!("serial {serial}: its resources are not valid JSON")),
            )
        })?,
    };
    let document = json!({
        "tenant": tenant, "project": query.project, "stack": query.stack, "serial": serial, "resources": resources,
    });
    Ok(Some(document.to_string().into()))
}
