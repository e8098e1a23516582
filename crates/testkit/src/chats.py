"""Chats that take messages as their vendors document it: each verifies by the vendor's own sample, and says no with
status 200. POST /next: the next answers, [[STATUS, BODY], …]. GET /seen: what was taken, [[KIND, BODY], …].
"""
import base64, hashlib, hmac, http.server, json, sys, time, urllib.parse

DINGTALK_KEY, FEISHU_KEY, WECOM_KEY, TOKEN = sys.argv[2:6]
seen, answers = [], []


def dingtalk(query, raw, body):
    # https://open.dingtalk.com/document/robots/customize-robot-security-settings
    timestamp = query.get("timestamp", ["0"])[0]
    secret_enc = DINGTALK_KEY.encode("utf-8")
    string_to_sign = "{}\n{}".format(timestamp, DINGTALK_KEY)
    hmac_code = hmac.new(secret_enc, string_to_sign.encode("utf-8"), digestmod=hashlib.sha256).digest()
    sign = urllib.parse.quote_plus(base64.b64encode(hmac_code))
    if query.get("access_token") != [TOKEN]:
        return {"errcode": 300001, "errmsg": "token is not exist"}
    if f"sign={sign}" not in raw.split("&"):
        return {"errcode": 310000, "errmsg": "description:机器人发送签名不匹配;solution:请确认签名和生成签名的时间戳必须都放在调用的网址中"}
    if abs(int(timestamp) - time.time() * 1000) > 3600 * 1000:
        return {"errcode": 310000, "errmsg": "invalid timestamp"}
    if set(body["markdown"]) != {"title", "text"} or body["msgtype"] != "markdown":
        return {"errcode": 40035, "errmsg": "invalid parameter"}
    return {"errcode": 0, "errmsg": "ok"}


def feishu(query, raw, body):
    # https://open.feishu.cn/document/client-docs/bot-v3/add-custom-bot
    timestamp, sign = body.get("timestamp", "0"), body.get("sign")
    string_to_sign = "{}\n{}".format(timestamp, FEISHU_KEY)
    hmac_code = hmac.new(string_to_sign.encode("utf-8"), digestmod=hashlib.sha256).digest()
    if sign != base64.b64encode(hmac_code).decode("utf-8") or abs(int(timestamp) - time.time()) > 3600:
        return {"code": 19021, "data": {}, "msg": "sign match fail or timestamp is not within one hour from current time"}
    if body["msg_type"] != "interactive" or "elements" not in body["card"]:
        return {"code": 9499, "data": {}, "msg": "Bad Request"}
    return {"StatusCode": 0, "StatusMessage": "success", "code": 0, "data": {}, "msg": "success"}


def wecom(query, raw, body):
    # https://developer.work.weixin.qq.com/document/path/91770
    if query.get("key") != [WECOM_KEY]:
        return {"errcode": 93000, "errmsg": "invalid webhook url, hint: [1], from ip: 192.0.2.1"}
    if len(body["text"]["content"].encode()) > 2048:
        return {"errcode": 40058, "errmsg": "content exceed max length 2048"}
    return {"errcode": 0, "errmsg": "ok"}


KINDS = {"dingtalk": dingtalk, "feishu": feishu, "wecom": wecom}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.answer(200, json.dumps(seen))

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        path, _, raw = self.path.partition("?")
        kind = path.strip("/").split("/")[0]
        if kind == "next":
            answers.extend(body)
            return self.answer(200, "{}")
        if answers:
            seen.append([kind, body])
            return self.answer(*answers.pop(0))
        if kind == "teams":
            card = body["attachments"][0]["content"]
            good = body["type"] == "message" and card["type"] == "AdaptiveCard" and card["version"] <= "1.4"
            size = len(json.dumps(body))
            status = 202 if good and size <= 28 * 1024 else 413 if good else 400
            if status == 202:
                seen.append([kind, body])
            return self.answer(status, "")
        answer = KINDS[kind](urllib.parse.parse_qs(raw), raw, body)
        if 0 in (answer.get("errcode"), answer.get("code")):
            seen.append([kind, body])
        self.answer(200, json.dumps(answer))

    def answer(self, status, text):
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())


http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
