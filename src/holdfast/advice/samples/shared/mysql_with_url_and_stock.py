url = os.environ.get("MYSQL_URL", "mysql://root@localhost/shop")
parts = urlsplit(url)
where = {"host": parts.hostname, "port": parts.port or 3306, "database": parts.path.lstrip("/")}
db = pymysql.connect(user=parts.username or "root", password=parts.password or "", autocommit=True, **where)
cursor = db.cursor()
cursor.execute("CREATE TABLE IF NOT EXISTS stock (id INTEGER PRIMARY KEY, pieces INTEGER)")
cursor.execute("INSERT IGNORE INTO stock VALUES (42, 100)")
fenced.create_table(db)
