"""What looks like a secret (E13): made up, and taken apart so that nobody looks for its owner."""
GITHUB = "ghp_" + "1aB2cD3eF4gH5iJ6kL7mN8oP9qR0sT1uV2wX"
AWS = "AKIA" + "Z7QK3M9X2W8P5LVD"
STRIPE = "sk_" + "live_" + "4eC39HqLyjWD"
SLACK = "xox" + "b-123456789012-abcdef"
WHSEC = "whsec_" + "MfKQ9r8GKYqrTwjUPD8I"
PEM = "-----BEGIN RSA " + "PRIVATE KEY-----"
JWT = "eyJhbGciOiJIUzI1NiJ9" + "." + "eyJzdWIiOiIxMjM0NTY3ODkwIn0" + ".c2ln"
TOKEN = "ol" + "t_Zm9vYmFyYmF6cXV4LXF1dXgtY29yZ2UtZ3JhdWw"
TICKET = "ol" + "k_Zm9vYmFyYmF6cXV4LXF1dXg"

# name: (rule, document, JSON pointer, the secret in it)
SECRETS = {
    "pem": ("private_key", {"key": PEM + "\nMIIE"}, "/key", PEM),
    "aws": ("aws_access_key", {"a": {"b": AWS}}, "/a/b", AWS),
    "aws after an example": ("aws_access_key", {"a": "AKIAIOSFODNN7EXAMPLE " + AWS}, "/a", AWS),
    "github": ("github_token", {"list": ["x", {"t": "Bearer " + GITHUB}]}, "/list/1/t", GITHUB),
    "stripe": ("stripe_live_key", {"a~b": {"c/d": STRIPE}}, "/a~0b/c~1d", STRIPE),
    "slack": ("slack_token", {"s": [[SLACK]]}, "/s/0/0", SLACK),
    "webhook": ("webhook_secret", {"hook": f"({WHSEC})"}, "/hook", WHSEC),
    "as a key": ("github_token", {"deep": {GITHUB: 1}}, "/deep", GITHUB),
    "key and value": ("github_token", {"deep": {GITHUB: GITHUB}}, "/deep", GITHUB),
    "under a secret key": ("github_token", {"deep": {GITHUB: {"x": GITHUB}}}, "/deep", GITHUB),
    "as a key at the top": ("webhook_secret", {WHSEC: 1}, "", WHSEC),
    "our own token": ("outlog_token", {"t": f"Bearer {TOKEN}"}, "/t", TOKEN),
    "our own ticket": ("outlog_token", {"t": [TICKET]}, "/t/0", TICKET),
}

# The same for rules that SQLite's triggers cannot apply.
NAMED_SECRETS = {
    "jwt": ("jwt", {"a": JWT}, "/a", JWT),
    "url": ("url_password", {"u": "postgres://joe:hunter22@db/x"}, "/u", "hunter22"),
    "authorization": (
        "authorization",
        {"headers": {"Authorization": "Basic am9lOmg"}},
        "/headers/Authorization",
        "am9lOmg",
    ),
    "a short password": ("password", {"db_password": "hunter2"}, "/db_password", "hunter2"),
    "a dull password": ("password", {"userPasswd": "aaaaaaaa"}, "/userPasswd", "aaaaaaaa"),
    "passphrase": ("password", {"passphrase": "correct horse"}, "/passphrase", "correct horse"),
    "client secret": ("client_secret", {"a": [{"clientSecret": "aaaabbbb"}]}, "/a/0/clientSecret", "aaaabbbb"),
}
