INSERT INTO fence (resource, token) VALUES (:resource, :token)
ON CONFLICT (resource) DO UPDATE SET token = excluded.token
WHERE excluded.token >= fence.token
