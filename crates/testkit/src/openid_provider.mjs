// An OpenID provider with people and groups, and a signer of the tokens of scripts.
//   node openid_provider.mjs LIBRARY PORT REDIRECT_URI…
// `/sign?sub=…&aud=…` answers with an ID token of the issuer; `iss`, `seconds`, `alg` and
// `key=other` make one that must be refused.
import { createServer } from 'node:http';
import { createHmac, createPrivateKey, createPublicKey, generateKeyPairSync, sign } from 'node:crypto';
import { pathToFileURL } from 'node:url';

const [library, port, ...redirects] = process.argv.slice(2);
const { Provider } = await import(pathToFileURL(library).href);
const people = {
  ada: { name: 'Ada <b>Lovelace</b>', groups: ['sre', 'everybody'] },
  grace: { name: 'Grace Hopper', groups: ['shop'] },
  eve: { name: 'Eve', groups: ['strangers'] },
};
// The export of a key that was just generated can wait for ever in Node 20: it shares a lock with the generator, which
// the garbage collector may hold. So keys go through PEM.
const key = () => createPrivateKey(generateKeyPairSync('rsa', {
  modulusLength: 2048,
  publicKeyEncoding: { type: 'spki', format: 'pem' },
  privateKeyEncoding: { type: 'pkcs8', format: 'pem' },
}).privateKey);
const [own, other] = [key(), key()];
const jwk = { ...own.export({ format: 'jwk' }), kid: 'one', use: 'sig', alg: 'RS256' };

const issuer = `http://127.0.0.1:${port}`;
const provider = new Provider(issuer, {
  clients: [{
    client_id: 'portal',
    redirect_uris: redirects,
    token_endpoint_auth_method: 'none',
    response_types: ['code'],
    grant_types: ['authorization_code'],
  }],
  jwks: { keys: [jwk] },
  cookies: { keys: ['only for tests'] },
  conformIdTokenClaims: false,
  claims: { openid: ['sub'], profile: ['preferred_username'], groups: ['groups'] },
  findAccount: (_, id) => people[id] && {
    accountId: id,
    claims: () => ({ sub: id, preferred_username: people[id].name, groups: people[id].groups }),
  },
});
const answer = provider.callback();
const part = (value) => Buffer.from(JSON.stringify(value)).toString('base64url');

function token(query) {
  const alg = query.get('alg') ?? 'RS256';
  const now = Math.floor(Date.now() / 1000);
  const claims = {
    iss: query.get('iss') ?? issuer,
    sub: query.get('sub'),
    aud: query.get('aud'),
    iat: now + Number(query.get('issued') ?? 0),
    ...(query.has('nbf') && { nbf: now + Number(query.get('nbf')) }),
    exp: now + Number(query.get('seconds') ?? 300),
  };
  const text = `${part({ alg, kid: 'one', typ: 'JWT' })}.${part(claims)}`;
  if (alg === 'none') return `${text}.`;
  if (alg === 'HS256') {
    // The public key as the secret of an algorithm with one key.
    const secret = createPublicKey(own).export({ type: 'spki', format: 'pem' });
    return `${text}.${createHmac('sha256', secret).update(text).digest('base64url')}`;
  }
  const privateKey = query.get('key') === 'other' ? other : own;
  return `${text}.${sign('sha256', Buffer.from(text), privateKey).toString('base64url')}`;
}

createServer((request, response) => {
  const url = new URL(request.url, issuer);
  if (url.pathname === '/sign') return response.end(token(url.searchParams));
  return answer(request, response);
}).listen(Number(port), '127.0.0.1');
