/* http_settings.h: the settings of destinations that are sent to by HTTP: webhook and sor. */
#ifndef OL_PUBLISH_HTTP_HTTP_SETTINGS_H
#define OL_PUBLISH_HTTP_HTTP_SETTINGS_H

#include "destinations/setting_types.h"
#include "publish/cloudevents.h"
#include "publish/outcome.h"

/* settings->own of sor, and the first member of that of webhook. */
struct ol_http_settings {
    const char *url;
    const char *method;
    const char *const *secrets; /* the newest first */
    size_t secret_count;
    bool allow_private;
    struct ol_status_set retry_on;
    const char *ca_file;
    const char *source; /* CloudEvents source; for sor the first half of source_id */

    /* the secrets as written, in either spelling */
    const char *secret, *secret_previous;
    struct ol_text_list secret_list;
};

enum ol_url_source { OL_URL_FROM_DESTINATION, OL_URL_FROM_PAYLOAD }; /* where the URL comes from */

/* settings->own of webhook. */
struct ol_webhook_settings {
    struct ol_http_settings http; /* first */
    struct ol_text_list allow_hosts;
    enum ol_envelope envelope;
    enum ol_url_source request;
};

/* All keys of struct ol_http_settings but `url`, which not every type needs. */
extern const struct ol_setting_key ol_http_settings_keys[];

/* Put the secrets in order, the newest first, and check that each can sign. */
int ol_http_settings_check_secrets(struct ol_setting_reader *reader);

/* Check `url` against the SSRF guard, unless it holds a ${NAME}. */
int ol_http_settings_check_url(struct ol_setting_reader *reader);

/* The method of this name as a constant, or NULL: POST, PUT, PATCH, DELETE, GET. */
const char *ol_http_settings_method(const struct ol_json *name);

#endif
